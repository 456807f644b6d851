// Streams before their first token and between tokens: progress of the prompt, and comment lines.
#include <algorithm>
#include <catch2/catch.hpp>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace quiet_streams {

constexpr auto kSoon = std::chrono::milliseconds(5);

ServerOptions pinging(std::chrono::milliseconds interval) {
  ServerOptions options = test_options();
  options.timeout.ping = interval;
  return options;
}

std::string posted(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

const std::string kChat = R"({"stream":true,"messages":[{"role":"user","content":"x"}])";

TEST_CASE("a quiet stream of events gets comment lines, which are no events, and continues") {
  TestServer server(says("ab"), pinging(kSoon));
  for (const char* const path : {"/v1/chat/completions", "/v1/messages"}) {
    INFO(path);
    server.engine().hold(true);
    HttpClient client(server.port());
    client.send(posted(path, kChat + R"(,"max_tokens":5})"));
    CHECK(client.receive_until(":\n\n\r\n3\r\n:\n\n"));
    server.engine().hold(false);
    const HttpReply reply = client.receive();
    CHECK(reply.status == 200);
    CHECK(reply.body.find("\"a") != std::string::npos);
  }
}

TEST_CASE("a stream's text is the same with comment lines and without") {
  const auto stream = [](std::chrono::milliseconds interval, bool waits) {
    TestServer server(says("ab"), pinging(interval));
    server.engine().hold(waits);
    HttpClient client(server.port());
    client.send(posted("/v1/completions", R"({"stream":true,"prompt":"x","request_id":"r"})"));
    if (waits) REQUIRE(client.receive_until(":\n\n"));
    server.engine().hold(false);
    std::vector<std::string> texts;
    for (const std::string& data : sse_data(client.receive().body)) {
      if (data != "[DONE]") texts.push_back(Json::parse(data)["choices"][0]["text"].get<std::string>());
    }
    return texts;
  };
  CHECK(stream(kSoon, true) == stream(std::chrono::milliseconds(0), false));
}

TEST_CASE("a request decides about its comment lines") {
  TestServer server(says("ab"), pinging(kSoon));
  server.engine().hold(true);
  HttpClient never(server.port());
  never.send(posted("/v1/completions", R"({"stream":true,"prompt":"x","sse_ping_interval":-1})"));
  HttpClient other(server.port());
  other.send(posted("/v1/completions", R"({"stream":true,"prompt":"x"})"));
  server.engine().wait_live(2);
  REQUIRE(other.receive_until(":\n\n"));
  server.engine().hold(false);
  CHECK(never.receive().body.find("\n:\n") == std::string::npos);
}

TEST_CASE("Ollama's lines of JSON have no comments") {
  TestServer server(says("ab"), pinging(kSoon));
  server.engine().hold(true);
  HttpClient lines(server.port());
  lines.send(posted("/api/generate", R"({"model":"fake","prompt":"x","raw":true})"));
  HttpClient events(server.port());
  events.send(posted("/v1/completions", R"({"stream":true,"prompt":"x"})"));
  server.engine().wait_live(2);
  REQUIRE(events.receive_until(":\n\n"));
  server.engine().hold(false);
  const HttpReply reply = lines.receive();
  CHECK(reply.body.front() == '{');
  CHECK(reply.body.find("\n:") == std::string::npos);
}

TEST_CASE("the progress of a prompt comes in chunks before its first token where it is asked for") {
  TestServer server(says("ab"));
  HttpClient client(server.port());
  const auto chunks = [&](const std::string& path, const std::string& fields) {
    std::vector<Json> list;
    const std::string body =
        R"({"prompt":"xyz","messages":[{"role":"user","content":"x"}],"stream":true)" + fields + "}";
    for (const std::string& data : sse_data(client.post(path, body).body)) {
      if (data != "[DONE]") list.push_back(Json::parse(data));
    }
    REQUIRE_FALSE(list.empty());
    return list;
  };
  for (const char* const path : {"/v1/completions", "/v1/chat/completions", "/completion"}) {
    INFO(path);
    const std::vector<Json> with = chunks(path, R"(,"return_progress":true)");
    const std::vector<Json> without = chunks(path, "");
    CHECK(with.size() == without.size() + 1);
    std::size_t num_told = 0;
    for (const Json& chunk : with)
      num_told += chunk.contains("prompt_progress") ? 1 : 0;
    CHECK(num_told == 1);
    const auto& told =
        *std::find_if(with.begin(), with.end(), [](const Json& chunk) { return chunk.contains("prompt_progress"); });
    const Json& progress = told["prompt_progress"];
    CHECK(progress["processed"] == progress["total"]);
    CHECK(progress["cache"] == 0);
    CHECK(progress["time_ms"] == 3);
    CHECK_FALSE(without.front().contains("prompt_progress"));
  }
  const HttpReply whole = client.post("/v1/completions", R"({"prompt":"xyz","return_progress":true})");
  CHECK(whole.status == 200);
  CHECK(whole.body.find("prompt_progress") == std::string::npos);
}

TEST_CASE("/slots lists as many slots as sequences may run; what acts on one is for admins alone") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.post("/slots/0?action=save", R"({"filename":"x"})");
  CHECK(reply.status == 403);
  CHECK(Json::parse(reply.body)["error"]["code"] == "admin_closed");
}

}  // namespace quiet_streams
