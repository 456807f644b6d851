// Clients that do not read their answers: waiting bytes are charged to them and bounded, on every handler, while others
// are answered. Long answers are made in parts.
#include <catch2/catch.hpp>
#include <deque>
#include <thread>

#include "server/wire/client_budget.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace slow_readers {

constexpr std::int64_t kAnswerBound = 4 << 20;
constexpr std::int64_t kLongest = 1 << 20;  // approximate size of an answer requested here

ServerOptions bounded() {
  ServerOptions options = test_options();
  options.max_body_bytes = 2 << 20;
  options.max_unread_bytes = kAnswerBound;
  return options;
}

std::string slow_post(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

std::string slow_get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n";
}

// Waits until `count` unread answers were cut.
void await_cuts(TestServer& server, std::int64_t count) {
  while (server.server().state().answers.num_cut() < count)
    std::this_thread::yield();
}

}  // namespace slow_readers

using namespace slow_readers;

TEST_CASE("unread answers are bounded, whatever handler made them, and a neighbour is served") {
  TestServer server(says("x"), bounded());
  HttpClient neighbour(server.port());
  const std::string text(kLongest, 'x');
  const Json made =
      answer_to(neighbour, "/v1/conversations", R"({"items":[{"role":"user","content":")" + text + R"("}]})");
  const std::string id = made["id"];
  const std::string chat = R"({"messages":[{"role":"user","content":")" + text + R"("}]})";
  const std::string request =
      GENERATE_COPY(slow_get("/v1/conversations/" + id + "/items"), slow_post("/apply-template", chat));
  std::deque<HttpClient> readers;
  for (int i = 0; i < 12; ++i)
    readers.emplace_back(server.port()).send(request);
  await_cuts(server, 1);
  CHECK(server.server().state().answers.num_bytes() <= kAnswerBound + 2 * kLongest);
  CHECK(neighbour.post("/v1/completions", R"({"prompt":"a","max_tokens":1})").status == 200);
  for (HttpClient& reader : readers)
    reader.close();
}

TEST_CASE("documents that all connections share cost their slow readers nothing") {
  TestServer server(says("x"), bounded());
  HttpClient neighbour(server.port());
  const HttpReply whole = neighbour.get("/openapi.json");
  CHECK(whole.status == 200);
  std::deque<HttpClient> readers;
  std::string requests;
  for (int i = 0; i < 200; ++i)
    requests += slow_get("/openapi.json");
  for (int i = 0; i < 16; ++i)
    readers.emplace_back(server.port()).send(requests);
  CHECK(neighbour.get("/openapi.json").body == whole.body);
  CHECK(server.server().state().answers.num_bytes() < std::ssize(whole.body));
  CHECK(server.server().state().answers.num_cut() == 0);
}

TEST_CASE("a long answer is made in parts, and is the same") {
  const std::string text(20'000, 'y');
  TestServer server(says(text), test_options(), [](ServedModel& model) { model.max_model_len = 40'000; });
  HttpClient client(server.port());
  const bool is_chat = GENERATE(true, false);
  const std::string path = is_chat ? "/v1/chat/completions" : "/v1/completions";
  const std::string prompt = is_chat ? R"("messages":[{"role":"user","content":"a"}])" : R"("prompt":"a")";
  const HttpReply reply = client.post(path, "{" + prompt + R"(,"n":16,"max_tokens":30000})");
  INFO(reply.body.substr(0, 500));
  REQUIRE(reply.status == 200);
  CHECK(reply.fields.count("content-length") == 0);
  const Json answer = Json::parse(reply.body);
  REQUIRE(answer["choices"].size() == 16);
  for (const Json& choice : answer["choices"])
    CHECK((is_chat ? choice["message"]["content"] : choice["text"]) == text);
  CHECK(answer["usage"]["completion_tokens"].get<std::size_t>() >= 16 * text.size());
  CHECK(client.get("/livez").status == 200);
  const HttpReply brief = client.post(path, "{" + prompt + R"(,"max_tokens":3})");
  CHECK(brief.fields.count("content-length") == 1);
}

TEST_CASE("a reader below the lowest rate is closed") {
  ServerOptions options = bounded();
  options.timeout.write = std::chrono::milliseconds(50);
  TestServer server(says("x"), options);
  HttpClient slow(server.port());
  const std::string chat = R"({"messages":[{"role":"user","content":")" + std::string(kLongest, 'x') + R"("}]})";
  slow.send(slow_post("/apply-template", chat));
  while (server.server().state().answers.num_bytes() == 0)
    std::this_thread::yield();
  while (server.server().state().answers.num_bytes() > 0)
    std::this_thread::yield();
  CHECK(server.server().state().answers.num_cut() == 0);
}

TEST_CASE("the largest generations wait for their readers within the bound, in every form") {
  constexpr std::size_t kNumTokens = 1'000;
  TestServer server(says(std::string(kNumTokens, 'y')), bounded(),
                    [](ServedModel& model) { model.max_model_len = 40'000; });
  const std::string length = std::to_string(2 * kNumTokens);
  const std::string chat = R"("messages":[{"role":"user","content":"a"}])";
  const std::string choices = R"(,"n":16,"max_tokens":)" + length;
  const bool is_stream = GENERATE(false, true);
  const auto form = GENERATE_COPY(
      as<std::pair<std::string, std::string>>{}, std::pair("/v1/completions", R"("prompt":"a","logprobs":5)" + choices),
      std::pair("/v1/chat/completions", chat + R"(,"logprobs":true,"top_logprobs":20)" + choices),
      std::pair("/v1/responses", R"("input":"a","max_output_tokens":)" + length),
      std::pair("/v1/messages", chat + R"(,"max_tokens":)" + length),
      std::pair("/completion", R"("prompt":"a","n_probs":20,"n_predict":)" + length),
      std::pair("/api/chat", chat + R"(,"options":{"num_predict":)" + length + "}"));
  INFO(form.first << (is_stream ? ", streamed" : ", whole"));
  const std::string body = "{" + form.second + R"(,"stream":)" + (is_stream ? "true" : "false") + "}";
  std::deque<HttpClient> readers;
  for (int i = 0; i < 8; ++i)
    readers.emplace_back(server.port()).send(slow_post(form.first, body));
  HttpClient neighbour(server.port());
  const ClientBudget& answers = server.server().state().answers;
  // The readers' generations end, wait or are cut; the neighbour's answers come meanwhile.
  for (int i = 0; i < 50; ++i)
    CHECK(neighbour.post("/v1/completions", R"({"prompt":"a","max_tokens":1})").status == 200);
  // Sixteen choices are more than the kernel and the bound hold.
  if (body.find("\"n\":16") != std::string::npos) await_cuts(server, 1);
  // Bytes of an answer that was cut count until its connection has ended.
  while (answers.num_bytes() > kAnswerBound)
    std::this_thread::yield();
  for (HttpClient& reader : readers)
    reader.close();
  while (server.server().state().num_busy.load() > 0)
    std::this_thread::yield();
  CHECK(answers.num_bytes() == 0);
}
