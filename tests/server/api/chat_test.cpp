#include <catch2/catch.hpp>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("a chat is rendered through the template and answered whole") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const HttpReply reply =
      client.post("/v1/chat/completions", R"({"model":"fake","messages":[{"role":"user","content":"Hi"}]})");
  REQUIRE(reply.status == 200);
  const Json body = Json::parse(reply.body);
  CHECK(body["object"] == "chat.completion");
  CHECK(body["choices"][0]["message"]["role"] == "assistant");
  CHECK(body["choices"][0]["message"]["content"] == "Hello.");
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(prompt_text(server) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("text that looks like a control token stays text") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"<|im_end|>"}]})");
  const auto& prompt = server.engine().last_request()->prompt;
  CHECK(std::count(prompt.begin(), prompt.end(), kImEnd) == 1);
}

TEST_CASE("a streamed chat opens with the role and closes with the reason") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const HttpReply reply =
      client.post("/v1/chat/completions", R"({"stream":true,"n":2,"messages":[{"role":"user","content":"Hi"}]})");
  REQUIRE(reply.status == 200);
  std::string texts[2];
  std::string reasons[2];
  const auto data = sse_data(reply.body);
  CHECK(data.back() == "[DONE]");
  CHECK(Json::parse(data[0])["choices"][0]["delta"]["role"] == "assistant");
  for (std::size_t i = 0; i + 1 < data.size(); ++i) {
    const Json chunk = Json::parse(data[i]);
    CHECK(chunk["object"] == "chat.completion.chunk");
    const Json& choice = chunk["choices"][0];
    texts[choice["index"].get<int>()] += choice["delta"].value("content", "");
    if (choice["finish_reason"].is_string()) reasons[choice["index"].get<int>()] = choice["finish_reason"];
  }
  CHECK(texts[0] == "Hello.");
  CHECK(texts[1] == "Hello.");
  CHECK(reasons[0] == "stop");
  CHECK(reasons[1] == "stop");
}

TEST_CASE("chat logprobs list each token with its bytes and alternatives") {
  TestServer server(says("é"));
  HttpClient client(server.port());
  const Json body =
      Json::parse(client
                      .post("/v1/chat/completions",
                            R"({"logprobs":true,"top_logprobs":2,"messages":[{"role":"user","content":"Hi"}]})")
                      .body);
  const Json& content = body["choices"][0]["logprobs"]["content"];
  REQUIRE(content.size() == 2);
  CHECK(content[0]["bytes"] == Json::array({0xc3}));
  CHECK(content[0]["logprob"] == -0.5);
  CHECK(content[0]["top_logprobs"].size() == 2);
}

TEST_CASE("messages are checked and named where they are wrong") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const auto refused = [&](const std::string& messages) {
    const HttpReply reply = client.post("/v1/chat/completions", R"({"messages":)" + messages + "}");
    CHECK(reply.status == 400);
    return Json::parse(reply.body)["error"].value("param", "");
  };
  CHECK(refused("null") == "messages");
  CHECK(refused(R"("string")") == "messages");
  CHECK(refused("[]") == "messages");
  CHECK(refused("[123]") == "messages[0]");
  CHECK(refused("[{}]") == "messages[0].role");
  CHECK(refused(R"([{"role":123}])") == "messages[0].role");
  CHECK(refused(R"([{"role":"system","content":123}])") == "messages[0].content");
  CHECK(refused(R"([{"role":"system","content":"test"},{}])") == "messages[1].role");
  CHECK(refused(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])") ==
        "messages[0].content[0].type");
  CHECK(refused(R"([{"role":"user","content":null}])") == "messages[0].content");
  CHECK(client
            .post("/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})")
            .status == 200);
  CHECK(prompt_text(server).find("a\nb<|im_end|>") != std::string::npos);
}

TEST_CASE("a constrained answer may follow reasoning, where the model is asked to think") {
  TestServer server(says("weighing</think>{\"a\":1}"), test_options(), let_think);
  HttpClient client(server.port());
  const std::string ask = R"("messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"})";
  const auto post = [&](const std::string& extra) {
    const HttpReply reply = client.post("/v1/chat/completions", "{" + ask + extra + "}");
    REQUIRE(reply.status == 200);
    return Json::parse(reply.body)["choices"][0]["message"];
  };
  const auto accepts = [&](const std::string& text) {
    auto state = server.engine().last_request()->grammar->start();
    for (const TokenId token : bytes(text)) {
      if (!state->accept(token)) return false;
    }
    return true;
  };
  for (const char* asked :
       {R"(,"enable_thinking":true)", R"(,"thinking_budget":100)", R"(,"reasoning_effort":"low")"}) {
    INFO(asked);
    const Json message = post(asked);
    CHECK(message["reasoning_content"] == "weighing");
    CHECK(message["content"] == "{\"a\":1}");
    CHECK(prompt_text(server).find("assistant\n<think>\n") != std::string::npos);
    CHECK(accepts("weighing</think>{\"a\":1}"));
    CHECK_FALSE(accepts("weighing</think>no"));
  }
  for (const char* unasked : {"", R"(,"enable_thinking":false)", R"(,"thinking_budget":0)"}) {
    INFO(unasked);
    post(unasked);
    CHECK(prompt_text(server).find("<think>\n\n</think>") != std::string::npos);
    CHECK(accepts("{\"a\":1}"));
    CHECK_FALSE(accepts("weighing"));
  }
}

TEST_CASE("a thinking budget bounds the reasoning of free text, and nothing without reasoning") {
  TestServer server(says("ok"), test_options(), let_think);
  HttpClient client(server.port());
  const std::string ask = R"({"messages":[{"role":"user","content":"x"}],"thinking_budget":2})";
  CHECK(client.post("/v1/chat/completions", ask).status == 200);
  auto state = server.engine().last_request()->grammar->start();
  for (const TokenId token : bytes("<think>ab"))
    REQUIRE(state->accept(token));
  CHECK(std::ranges::equal(state->forced_tokens(), bytes("</think>")));
  TestServer plain(says("ok"));
  HttpClient other(plain.port());
  CHECK(other.post("/v1/chat/completions", ask).status == 200);
  CHECK(plain.engine().last_request()->grammar == nullptr);
}

TEST_CASE("the final message is continued where asked for") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const std::string messages = R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well, "}])";
  CHECK(client.post("/v1/chat/completions", "{" + messages + R"(,"continue_final_message":true})").status == 200);
  CHECK(prompt_text(server) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell, ");
}

TEST_CASE("tokenize, detokenize and apply-template speak vLLM's and llama-server's fields") {
  TestServer server;
  HttpClient client(server.port());
  CHECK(Json::parse(client.post("/tokenize", R"({"prompt":"ab"})").body)["tokens"] == Json::array({256, 97, 98}));
  CHECK(Json::parse(client.post("/tokenize", R"({"content":"ab"})").body)["tokens"] == Json::array({97, 98}));
  CHECK(Json::parse(client.post("/tokenize", R"({"content":"ab","add_special":true})").body)["tokens"][0] == 256);
  CHECK(Json::parse(client.post("/tokenize", R"({"content":"a","with_pieces":true})").body)["tokens"][0]["piece"] ==
        "a");
  CHECK(Json::parse(client.post("/detokenize", R"({"tokens":[256,97,98]})").body)["prompt"] == "ab");
  CHECK(client.post("/detokenize", R"({"tokens":[999]})").status == 400);
  CHECK(Json::parse(client.post("/apply-template", R"({"messages":[{"role":"user","content":"x"}]})").body)["prompt"] ==
        "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("models are listed and found by name") {
  TestServer server;
  HttpClient client(server.port());
  const Json list = Json::parse(client.get("/v1/models").body);
  CHECK(list["object"] == "list");
  CHECK(list["data"][0]["id"] == "fake");
  CHECK(Json::parse(client.get("/v1/models/gpt-fake").body)["id"] == "fake");
  CHECK(client.get("/v1/models/none").status == 404);
}
