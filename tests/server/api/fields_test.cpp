// Fields whose effect is in the response itself, whatever the model.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "server/api/common/json.h"
#include "server/api/common/operation.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

Json answer_of(HttpClient& client, const std::string& path, const std::string& body) {
  const HttpReply reply = client.post(path, body);
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return Json::parse(reply.body);
}

std::vector<Json> chunks_of(HttpClient& client, const std::string& path, const std::string& body) {
  std::vector<Json> chunks;
  for (const std::string& data : sse_data(client.post(path, body).body)) {
    if (data != "[DONE]") chunks.push_back(Json::parse(data));
  }
  return chunks;
}

Json joined_ids(const std::vector<Json>& chunks) {
  Json ids = Json::array();
  for (const Json& chunk : chunks) {
    for (const Json& id : chunk["choices"][0].value("token_ids", Json::array()))
      ids.push_back(id);
  }
  return ids;
}

}  // namespace

TEST_CASE("returned token ids hold the token that ended the text, whole and streamed") {
  TestServer server(says("ab"));
  HttpClient client(server.port());
  const Json expected{97, 98, kEos.value};
  const std::string chat = R"("messages":[{"role":"user","content":"x"}],"return_token_ids":true})";
  CHECK(answer_of(client, "/v1/chat/completions", "{" + chat)["choices"][0]["token_ids"] == expected);
  CHECK(joined_ids(chunks_of(client, "/v1/chat/completions", R"({"stream":true,)" + chat)) == expected);
  const std::string text = R"("prompt":"x","return_token_ids":true)";
  CHECK(answer_of(client, "/v1/completions", "{" + text + "}")["choices"][0]["token_ids"] == expected);
  CHECK(joined_ids(chunks_of(client, "/v1/completions", R"({"stream":true,)" + text + "}")) == expected);
  // A text that max_tokens cut has no such token.
  const Json cut{97};
  CHECK(answer_of(client, "/v1/completions", "{" + text + R"(,"max_tokens":1})")["choices"][0]["token_ids"] == cut);
}

TEST_CASE("a field that looks misspelt is named in a header, and only such a one") {
  TestServer server(says("ab"));
  HttpClient client(server.port());
  const auto warned = [&](const std::string& path, const std::string& fields) {
    const std::string prompt =
        path == "/v1/embeddings" ? R"("input":"x")" : R"("prompt":"x","messages":[{"role":"user","content":"x"}])";
    const HttpReply reply = client.post(path, "{" + prompt + "," + fields + "}");
    CHECK(reply.status == 200);
    const auto found = reply.fields.find("x-quire-warning");
    return found == reply.fields.end() ? std::string() : found->second;
  };
  const std::string chat = "/v1/chat/completions";
  CHECK(warned("/v1/completions", R"("max_tokns":1)") == "unknown field 'max_tokns'; did you mean 'max_tokens'?");
  CHECK(warned(chat, R"("temprature":1)") == "unknown field 'temprature'; did you mean 'temperature'?");
  CHECK(warned(chat, R"("stream":true,"temprature":1)") == "unknown field 'temprature'; did you mean 'temperature'?");
  CHECK(warned("/v1/embeddings", R"("dimension":1)") == "unknown field 'dimension'; did you mean 'dimensions'?");
  CHECK(warned(chat, R"("my_own_field":1,"x":2,"max_tokens":1)").empty());
  // Only the first unknown members are compared: the work does not grow with their number.
  std::string many;
  for (std::size_t i = 0; i < FieldReader::kMostCompared; ++i)
    many += fmt::format(R"("unlike_any_{}":0,)", i);
  CHECK(warned(chat, many + R"("temprature":1)").empty());
  CHECK(warned(chat, R"("temprature":1,)" + many + R"("x":1)").find("temperature") != std::string::npos);
  // The header contains only letters of a field's name from a client's text.
  CHECK(warned(chat, R"("max_tokens\r\nSet-Cookie: a":1)").empty());
  CHECK(warned(chat, R"("max_tokens\u00e9":1)").empty());
}

TEST_CASE("a request's own id ends the response's, and two at once may share it") {
  TestServer server(says("ab"));
  HttpClient client(server.port());
  const std::string chat = R"("request_id":"a\"b","messages":[{"role":"user","content":"x"}]})";
  CHECK(answer_of(client, "/v1/chat/completions", "{" + chat)["id"] == "chatcmpl-a\"b");
  for (const Json& chunk : chunks_of(client, "/v1/chat/completions", R"({"stream":true,)" + chat))
    CHECK(chunk["id"] == "chatcmpl-a\"b");
  CHECK(answer_of(client, "/v1/completions", R"({"prompt":"x","request_id":"r"})")["id"] == "cmpl-r");
  const std::string first = server.engine().last_request()->id;
  answer_of(client, "/v1/completions", R"({"prompt":"x","request_id":"r"})");
  CHECK(server.engine().last_request()->id != first);
}

TEST_CASE("prompt log probabilities are bounded") {
  TestServer server(says("ab"), test_options(), [](ServedModel& model) { model.max_model_len = 1 << 20; });
  HttpClient client(server.port());
  const std::string prompt(20000, 'x');
  const auto refused = [&](const std::string& fields) {
    const HttpReply reply = client.post("/v1/completions", R"({"prompt":")" + prompt + "\"," + fields + "}");
    CHECK(reply.status == 400);
    return Json::parse(reply.body)["error"].value("param", "");
  };
  CHECK(refused(R"("prompt_logprobs":20)") == "prompt_logprobs");
  CHECK(refused(R"("echo":true,"logprobs":20)") == "logprobs");
  CHECK(client.post("/v1/completions", R"({"prompt":")" + prompt + R"(","prompt_logprobs":0})").status == 200);
}

TEST_CASE("embeddings are cut to the wanted dimensions and pooled as the model says") {
  TestServer server({}, test_options(), [](ServedModel& model) { model.info.pooling = Pooling::kMean; });
  HttpClient client(server.port());
  const auto vector = [&](const std::string& fields) {
    return answer_of(client, "/v1/embeddings", R"({"input":"x")" + fields + "}")["data"][0]["embedding"]
        .get<std::vector<double>>();
  };
  CHECK(vector("").size() == 4);
  CHECK(server.engine().last_request()->pooling == Pooling::kMean);
  CHECK(vector(R"(,"dimensions":4)") == vector(""));
  CHECK(vector(R"(,"dimensions":2)") == std::vector<double>{1.0, 0.0});
  CHECK(std::abs(vector(R"(,"dimensions":3)")[2] - 0.8) < 1e-6);
  CHECK(client.post("/v1/embeddings", R"({"input":"x","dimensions":5})").status == 400);
  CHECK(client.post("/v1/embeddings", R"({"input":"x","dimensions":0})").status == 400);
}

TEST_CASE("a prompt is truncated at the end that is asked for") {
  TestServer server;
  HttpClient client(server.port());
  const std::string asked = R"({"prompt":[97,98,99,100],"return_token_ids":true,"truncate_prompt_tokens":2)";
  const auto kept = [&](const std::string& side) {
    return answer_of(client, "/v1/completions", asked + side + "}")["choices"][0]["prompt_token_ids"];
  };
  CHECK(kept("") == Json{99, 100});
  CHECK(kept(R"(,"truncation_side":"left")") == Json{99, 100});
  CHECK(kept(R"(,"truncation_side":"right")") == Json{97, 98});
  CHECK(client.post("/v1/completions", asked + R"(,"truncation_side":"middle"})").status == 400);
  const Json embedded = answer_of(client, "/v1/embeddings", R"({"input":"abcdef","truncate_prompt_tokens":3})");
  CHECK(embedded["usage"]["prompt_tokens"] == 3);
}

TEST_CASE("n_predict goes before max_tokens, and less than nothing is up to the context's end") {
  TestServer server;
  HttpClient client(server.port());
  const std::string asked = R"({"prompt":"01234567890123456789","max_tokens":2)";
  const auto text = [&](const std::string& fields) {
    return answer_of(client, "/v1/completions", asked + fields + "}")["choices"][0]["text"].get<std::string>();
  };
  CHECK(text(R"(,"n_predict":3)") == "012");
  CHECK(text(R"(,"n_predict":-1)") == "01234567890123456789");
}

TEST_CASE("usage in every chunk is a part of usage in the stream") {
  TestServer server;
  HttpClient client(server.port());
  const auto counted = [&](const std::string& options) {
    std::size_t count = 0;
    for (const Json& chunk :
         chunks_of(client, "/v1/completions", R"({"prompt":"ab","stream":true,"stream_options":)" + options + "}"))
      count += chunk.contains("usage") && !chunk["usage"].is_null() ? 1 : 0;
    return count;
  };
  CHECK(counted(R"({"continuous_usage_stats":true})") == 0);
  CHECK(counted(R"({"include_usage":true})") == 1);
  CHECK(counted(R"({"include_usage":true,"continuous_usage_stats":true})") > 2);
}

TEST_CASE("what is wrong inside a message is named by its whole path") {
  TestServer server;
  HttpClient client(server.port());
  const auto param = [&](const std::string& message) {
    const HttpReply reply = client.post("/v1/chat/completions", R"({"messages":[)" + message + "]}");
    CHECK(reply.status == 400);
    return Json::parse(reply.body)["error"]["param"].get<std::string>();
  };
  const auto call = [&](const std::string& fields) {
    return param(R"({"role":"assistant","content":"x","tool_calls":[)" + fields + "]}");
  };
  CHECK(param(R"({"role":"user","content":[]})") == "messages[0].content");
  CHECK(call(R"({"id":1,"type":"function","function":{"name":"f","arguments":"{}"}})") ==
        "messages[0].tool_calls[0].id");
  CHECK(call(R"({"id":"a","type":"function","function":{"name":1,"arguments":"{}"}})") ==
        "messages[0].tool_calls[0].function.name");
}

TEST_CASE("an id has twenty-four letters and digits, each as likely as another, and none comes twice") {
  std::set<std::string> ids;
  std::map<char, int> counts;
  constexpr int kIds = 20'000;
  for (int i = 0; i < kIds; ++i) {
    const std::string id = make_id("x-");
    REQUIRE(id.size() == 26);
    CHECK(ids.insert(id).second);
    for (const char c : id.substr(2))
      ++counts[c];
  }
  CHECK(counts.size() == 36);
  const double expected = 24.0 * kIds / 36.0;  // six standard deviations
  for (const auto& [letter, count] : counts)
    CHECK(std::abs(count - expected) < 6.0 * std::sqrt(expected));
}
