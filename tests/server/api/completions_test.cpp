#include <catch2/catch.hpp>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

// The concatenated text of a streamed completion's first choice.
std::string streamed_text(const HttpReply& reply) {
  std::string text;
  for (const std::string& data : sse_data(reply.body)) {
    if (data == "[DONE]") continue;
    const Json chunk = Json::parse(data);
    for (const Json& choice : chunk["choices"])
      text += choice["text"].get<std::string>();
  }
  return text;
}

}  // namespace

TEST_CASE("a completion is answered whole with text, reason and usage") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/completions", R"({"model":"fake","prompt":"hello","max_tokens":50})");
  REQUIRE(reply.status == 200);
  const Json body = Json::parse(reply.body);
  CHECK(body["object"] == "text_completion");
  CHECK(body["model"] == "fake");
  CHECK(body["choices"][0]["text"] == "hello");
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(body["choices"][0]["logprobs"].is_null());
  CHECK(body["usage"]["prompt_tokens"] == 6);      // counts BOS
  CHECK(body["usage"]["completion_tokens"] == 6);  // counts EOS
  CHECK(body["usage"]["total_tokens"] == 12);
  CHECK(body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0);
}

TEST_CASE("max_tokens ends a completion with length, and defaults to 16") {
  TestServer server;
  HttpClient client(server.port());
  const Json short_body = Json::parse(client.post("/v1/completions", R"({"prompt":"hello","max_tokens":3})").body);
  CHECK(short_body["choices"][0]["text"] == "hel");
  CHECK(short_body["choices"][0]["finish_reason"] == "length");
  const Json body = Json::parse(client.post("/v1/completions", R"({"prompt":"01234567890123456789"})").body);
  CHECK(body["choices"][0]["text"] == "0123456789012345");
}

TEST_CASE("a streamed completion sends its text in order, then usage, then DONE") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.post(
      "/v1/completions", R"({"prompt":"grüße","stream":true,"max_tokens":50,"stream_options":{"include_usage":true}})");
  REQUIRE(reply.status == 200);
  CHECK(reply.fields.at("content-type").find("text/event-stream") == 0);
  CHECK(streamed_text(reply) == "grüße");
  const auto data = sse_data(reply.body);
  REQUIRE(data.size() >= 3);
  CHECK(data.back() == "[DONE]");
  const Json usage = Json::parse(data[data.size() - 2]);
  CHECK(usage["choices"].empty());
  CHECK(usage["usage"]["completion_tokens"] == 8);
  const Json last = Json::parse(data[data.size() - 3]);
  CHECK(last["choices"][0]["finish_reason"] == "stop");
  CHECK(last["usage"].is_null());
}

TEST_CASE("a stop string across token borders ends the text before it") {
  TestServer server;
  HttpClient client(server.port());
  const std::string request = R"({"prompt":"abc STOP def","max_tokens":50,"stop":["STOP","zzz"])";
  const Json body = Json::parse(client.post("/v1/completions", request + "}").body);
  CHECK(body["choices"][0]["text"] == "abc ");
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(body["choices"][0]["stop_reason"] == "STOP");
  CHECK(body["usage"]["completion_tokens"] == 8);
  const Json included =
      Json::parse(client.post("/v1/completions", request + R"(,"include_stop_str_in_output":true})").body);
  CHECK(included["choices"][0]["text"] == "abc STOP");
  CHECK(streamed_text(client.post("/v1/completions", request + R"(,"stream":true})")) == "abc ");
  CHECK(streamed_text(client.post("/v1/completions",
                                  R"({"prompt":"abc STO","max_tokens":50,"stop":"STOP","stream":true})")) == "abc STO");
}

TEST_CASE("batched prompts and n give choices in the order of the prompts") {
  TestServer server([](const Request& request, std::int32_t choice) {
    std::vector<TokenId> output(request.prompt.end() - 1, request.prompt.end());
    output.push_back(TokenId{'0' + choice});
    return output;
  });
  HttpClient client(server.port());
  const Json body = Json::parse(client.post("/v1/completions", R"({"prompt":["a","b"],"n":2})").body);
  REQUIRE(body["choices"].size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(body["choices"][i]["index"] == i);
    CHECK(body["choices"][i]["text"] == std::string(i < 2 ? "a" : "b") + (i % 2 == 0 ? "0" : "1"));
  }
}

TEST_CASE("token-id prompts, echo and token ids in the answer") {
  TestServer server;
  HttpClient client(server.port());
  const Json body = Json::parse(
      client.post("/v1/completions", R"({"prompt":[104,105],"echo":true,"logprobs":1,"return_token_ids":true})").body);
  const Json& choice = body["choices"][0];
  CHECK(choice["text"] == "hihi");
  CHECK(choice["prompt_token_ids"] == Json::array({104, 105}));
  CHECK(choice["token_ids"] == Json::array({104, 105, kEos.value}));
  CHECK(choice["logprobs"]["tokens"] == Json::array({"h", "i", "h", "i"}));
  CHECK(choice["logprobs"]["token_logprobs"] == Json::array({nullptr, -0.25, -0.5, -0.5}));
  CHECK(choice["logprobs"]["text_offset"] == Json::array({0, 1, 2, 3}));
  // The token that begins a prompt shows nothing, and each byte of a character stands where the character does.
  const Json shown = Json::parse(
      client.post("/v1/completions", R"({"prompt":"h\u00e9","echo":true,"logprobs":0,"max_tokens":3})").body);
  CHECK(shown["choices"][0]["text"] == "h\u00e9h\u00e9");
  CHECK(shown["choices"][0]["logprobs"]["text_offset"] == Json::array({0, 0, 1, 1, 2, 3, 3}));
  const Json scored = Json::parse(client.post("/v1/completions", R"({"prompt":"hi","echo":true,"max_tokens":0})").body);
  CHECK(scored["choices"][0]["text"] == "hi");
}

TEST_CASE("a prompt that is echoed with max_tokens 0 has no token behind it") {
  TestServer server;
  HttpClient client(server.port());
  const std::string body = R"({"prompt":[104,105],"echo":true,"max_tokens":0,"logprobs":1,"return_token_ids":true)";
  const Json whole = Json::parse(client.post("/v1/completions", body + "}").body);
  CHECK(whole["choices"][0]["token_ids"].empty());
  CHECK(whole["choices"][0]["finish_reason"] == "length");
  CHECK(whole["usage"]["completion_tokens"] == 0);
  std::string text;
  Json last;
  const std::string streamed = R"(,"stream":true,"stream_options":{"include_usage":true}})";
  for (const std::string& data : sse_data(client.post("/v1/completions", body + streamed).body)) {
    if (data == "[DONE]") break;
    last = Json::parse(data);
    if (last["choices"].empty()) continue;
    text += last["choices"][0]["text"].get<std::string>();
    CHECK(last["choices"][0]["logprobs"]["tokens"] == Json::array({"h", "i"}));
    CHECK(last["choices"][0]["token_ids"].empty());
    CHECK(last["choices"][0]["finish_reason"] == "length");
  }
  CHECK(text == "hi");
  CHECK(last["usage"]["completion_tokens"] == 0);
}

TEST_CASE("what a completion cannot honour is refused by name") {
  TestServer server;
  HttpClient client(server.port());
  const auto refused = [&](const std::string& fields) {
    const HttpReply reply = client.post("/v1/completions", R"({"prompt":"x")" + fields + "}");
    CHECK(reply.status == 400);
    const Json error = Json::parse(reply.body)["error"];
    CHECK(error["code"].is_string());
    CHECK(error["type"] == "invalid_request_error");
    return error["param"].is_string() ? error["param"].get<std::string>() : std::string();
  };
  CHECK(refused(R"(,"suffix":"y")") == "suffix");
  CHECK(refused(R"(,"temperature":-1)") == "temperature");
  CHECK(refused(R"(,"temperature":"hot")") == "temperature");
  CHECK(refused(R"(,"top_p":1.5)") == "top_p");
  CHECK(refused(R"(,"max_tokens":1.5)") == "max_tokens");
  CHECK(refused(R"(,"n":0)") == "n");
  CHECK(refused(R"(,"logit_bias":{"foo":0})") == "logit_bias");
  CHECK(refused(R"(,"logit_bias":{"999":0})") == "logit_bias");
  CHECK(refused(R"(,"stop":[""])") == "stop");
  CHECK(refused(R"(,"stop":[1])") == "stop[0]");
  CHECK(refused(R"(,"stream_options":{})") == "stream_options");
  CHECK(refused(R"(,"prompt":[])") == "prompt");
  CHECK(refused(R"(,"prompt":[1,-1])") == "prompt[1]");
  CHECK(refused(R"(,"prompt":[[1],["a"]])") == "prompt[1][0]");
  CHECK(refused(R"(,"best_of":1,"n":2)") == "best_of");
  CHECK(client.post("/v1/completions", R"({"prompt":"x","an_unknown_field":[1]})").status == 200);
}

TEST_CASE("a prompt that leaves no room is refused before it is queued") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/completions", R"({"prompt":")" + std::string(3000, 'x') + R"("})");
  CHECK(reply.status == 400);
  CHECK(Json::parse(reply.body)["error"]["code"] == "context_length_exceeded");
  CHECK(server.engine().last_request() == nullptr);
}

TEST_CASE("an unknown model is a 404, an alias is not") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/completions", R"({"model":"other","prompt":"x"})");
  CHECK(reply.status == 404);
  CHECK(Json::parse(reply.body)["error"]["code"] == "model_not_found");
  CHECK(client.post("/v1/completions", R"({"model":"gpt-fake","prompt":"x"})").status == 200);
}

TEST_CASE("control tokens in a prompt are tokens unless they are to be text") {
  TestServer server;
  HttpClient client(server.port());
  const auto num_prompt_tokens = [&](const std::string& path, const std::string& more) {
    const HttpReply reply = client.post(path, R"({"prompt":"<|im_start|>a")" + more + "}");
    REQUIRE(reply.status == 200);
    return server.engine().last_request()->prompt.size();
  };
  CHECK(num_prompt_tokens("/v1/completions", "") == 1 + 1 + 1);
  CHECK(num_prompt_tokens("/v1/completions", R"(,"parse_special":false)") == 1 + 12 + 1);
  CHECK(num_prompt_tokens("/completion", "") == 1 + 1 + 1);
}
