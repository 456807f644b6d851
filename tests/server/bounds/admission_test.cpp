// Limits on a request before it is computed: places in the queue and a key's quota.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "server/api/common/model_table.h"
#include "server/ops/keys/quota.h"
#include "tests/server/models/models_server.h"

using namespace quire;
using namespace quire::test;

namespace {

std::string list_of(int num_prompts, const std::string& more = "") {
  Json prompts = Json::array();
  for (int i = 0; i < num_prompts; ++i)
    prompts.push_back("p" + std::to_string(i));
  return R"({"prompt":)" + dump_json(prompts) + R"(,"max_tokens":1)" + more + "}";
}

// A server over an engine with these bounds.
class BoundedServer {
 public:
  explicit BoundedServer(const QueueOptions& queue, const ServerOptions& options = test_options())
      : engine_(says("x"), queue), server_(options) {
    server_.start();
    auto model = fake_model(engine_.queue());
    server_.serve(std::make_shared<const ModelTable>(ready_table(std::move(model))));
  }
  ~BoundedServer() { engine_.stop(); }
  BoundedServer(const BoundedServer&) = delete;
  BoundedServer& operator=(const BoundedServer&) = delete;

  FakeEngine& engine() { return engine_; }
  std::uint16_t port() const { return server_.port(); }

 private:
  FakeEngine engine_;
  Server server_;
};

ServerOptions with_key(const KeyQuota& quota) {
  ::setenv("QUIRE_ADMISSION_KEY", "admission-secret", 1);
  ServerOptions options = test_options();
  ApiKeyOptions key;
  key.name = "alice";
  key.env = "QUIRE_ADMISSION_KEY";
  key.quota = quota;
  options.security.keys = {key};
  return options;
}

void send_with_key(HttpClient& client, const std::string& body) {
  client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nx-api-key: admission-secret\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
}

}  // namespace

TEST_CASE("a list of prompts is submitted piece by piece and answered whole, in order") {
  ServerOptions options = test_options();
  options.list_window = 4;
  BoundedServer server({}, options);
  server.engine().hold(true);
  HttpClient client(server.port());
  client.send(posted_completion(list_of(10)));
  server.engine().wait_live(4);
  server.engine().hold(false);
  const HttpReply reply = client.receive();
  REQUIRE(reply.status == 200);
  const Json body = Json::parse(reply.body);
  REQUIRE(body["choices"].size() == 10);
  for (std::size_t i = 0; i < 10; ++i)
    CHECK(body["choices"][i]["index"] == i);
}

TEST_CASE("lists of 1,024 and 256 prompts leave places for a neighbour") {
  BoundedServer server({.max_queued_requests = 64});
  server.engine().hold(true);
  HttpClient first(server.port());
  HttpClient second(server.port());
  first.send(posted_completion(list_of(1024)));
  second.send(posted_completion(list_of(256)));
  server.engine().wait_live(32);  // two windows: half of the queue
  HttpClient neighbour(server.port());
  neighbour.send(posted_completion(R"({"prompt":"a","max_tokens":1})"));
  server.engine().wait_live(33);
  server.engine().hold(false);
  CHECK(neighbour.receive().status == 200);
  CHECK(first.receive().status == 200);
  CHECK(second.receive().status == 200);
}

TEST_CASE("a list that found its queue full continues in its own places") {
  BoundedServer server({.max_queued_requests = 2});
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/completions", list_of(20));
  REQUIRE(reply.status == 200);
  CHECK(Json::parse(reply.body)["choices"].size() == 20);
}

TEST_CASE("a client that leaves in the middle of a list ends it") {
  ServerOptions options = test_options();
  options.list_window = 2;
  BoundedServer server({}, options);
  server.engine().hold(true);
  {
    HttpClient client(server.port());
    client.send(posted_completion(list_of(50)));
    server.engine().wait_live(2);
  }
  server.engine().wait_aborted(2);
  server.engine().hold(false);
  server.engine().wait_live(0);
  HttpClient other(server.port());
  CHECK(other.post("/v1/completions", list_of(1)).status == 200);
}

TEST_CASE("embeddings come piece by piece too") {
  TestServer server({}, test_options(), [](ServedModel& model) { model.info.pooling = Pooling::kMean; });
  HttpClient client(server.port());
  Json inputs = Json::array();
  for (int i = 0; i < 50; ++i)
    inputs.push_back("text " + std::to_string(i));
  const HttpReply reply = client.post("/v1/embeddings", dump_json(Json{{"input", inputs}}));
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  CHECK(Json::parse(reply.body)["data"].size() == 50);
}

TEST_CASE("a key's concurrent requests are sequences: a list keeps below the bound, choices count each") {
  BoundedServer server({}, with_key({.max_concurrent = 3}));
  server.engine().hold(true);
  HttpClient list(server.port());
  send_with_key(list, list_of(12));
  server.engine().wait_live(3);
  HttpClient other(server.port());
  send_with_key(other, list_of(1));
  CHECK(other.receive().status == 429);
  server.engine().hold(false);
  CHECK(list.receive().status == 200);
  send_with_key(other, list_of(1, R"(,"n":4)"));
  const HttpReply four = other.receive();
  CHECK(four.status == 429);
  CHECK(four.fields.count("retry-after") == 0);  // waiting would not help
  send_with_key(other, list_of(2, R"(,"n":3)"));
  CHECK(other.receive().status == 200);
}

TEST_CASE("a key's requests per minute are sequences") {
  BoundedServer server({}, with_key({.requests_per_minute = 12}));
  HttpClient client(server.port());
  send_with_key(client, list_of(8));
  CHECK(client.receive().status == 200);
  send_with_key(client, list_of(5));
  CHECK(client.receive().status == 429);
  send_with_key(client, list_of(13));
  CHECK(client.receive().fields.count("retry-after") == 0);
  send_with_key(client, list_of(1));
  CHECK(client.receive().status == 200);
}

TEST_CASE("a full queue refuses before the body is read") {
  BoundedServer server({.max_queued_requests = 1});
  server.engine().hold(true);
  HttpClient first(server.port());
  first.send(posted_completion(R"({"prompt":"a","max_tokens":1})"));
  server.engine().wait_live(1);
  HttpClient client(server.port());
  // The body is not JSON: reading it would give a 400.
  const HttpReply refused = client.post("/v1/completions", "no json");
  CHECK(refused.status == 503);
  CHECK(error_code(refused) == "server_overloaded");
  CHECK(refused.fields.count("retry-after") == 1);
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n");
  CHECK(client.receive().status == 503);
  // A request that computes nothing needs no place.
  HttpClient counter(server.port());
  CHECK(counter.post("/tokenize", R"({"prompt":"abc"})").status == 200);
  server.engine().hold(false);
  CHECK(first.receive().status == 200);
}

TEST_CASE("bodies of what waits are bounded for a ready model, in all and by key") {
  const std::string large = R"({"prompt":"a","max_tokens":1,"user":")" + std::string(600, 'x') + "\"}";
  BoundedServer server({.max_queued_bytes = 1000, .max_queued_bytes_per_key = 900}, with_key({}));
  server.engine().hold(true);
  HttpClient first(server.port());
  send_with_key(first, large);
  server.engine().wait_live(1);
  HttpClient second(server.port());
  send_with_key(second, large);
  CHECK(second.receive().status == 429);
  server.engine().hold(false);
  CHECK(first.receive().status == 200);
  send_with_key(second, large);
  CHECK(second.receive().status == 200);
  send_with_key(second, R"({"prompt":"a","user":")" + std::string(1200, 'x') + "\"}");
  CHECK(second.receive().status == 400);
}

TEST_CASE("the model that a body asks is found without parsing all of it") {
  std::vector<TableEntry> entries(2);
  entries[0].name = "one";
  entries[1].name = "two";
  entries[1].aliases = {"zwei"};
  const ModelTable table(entries);
  const auto peeked = [&](const std::string& body) -> std::string {
    const TableEntry* const entry = peek_model(table, body);
    return entry == nullptr ? "" : entry->name;
  };
  CHECK(peeked(R"({"model":"two","prompt":")") == "two");  // cut off behind it
  CHECK(peeked(R"({"a":{"model":"one"},"b":["model"],"model":"zwei"})") == "two");
  CHECK(peeked(R"({"prompt":"x"})") == "one");
  CHECK(peeked(R"({"model":"three"})").empty());
  CHECK(peeked(R"({"model":5})") == "one");
}
