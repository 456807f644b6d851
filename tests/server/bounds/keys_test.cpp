#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/api/common/json.h"
#include "server/ops/keys/quota.h"
#include "server/router.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

// The SHA-256 of "alice-secret", by sha256sum.
const std::string kAliceHash = "0c848abb03307b06cf70cd4e29c157dc81af5e94ab3eb1d0c59a120269572376";

ApiKeyOptions hashed(const std::string& name, const std::string& hash) {
  ApiKeyOptions key;
  key.name = name;
  key.sha256 = hash;
  return key;
}

ApiKeyOptions from_env(const std::string& name, const std::string& secret, KeyQuota quota = {}) {
  const std::string variable = "QUIRE_TEST_KEY_" + name;
  ::setenv(variable.c_str(), secret.c_str(), 1);
  ApiKeyOptions key;
  key.name = name;
  key.env = variable;
  key.quota = quota;
  return key;
}

ServerOptions with_keys(std::vector<ApiKeyOptions> keys, PageAccess metrics = PageAccess::kOpen) {
  ServerOptions options = test_options();
  options.security.keys = std::move(keys);
  options.security.metrics = metrics;
  return options;
}

HttpReply complete_with(HttpClient& client, const std::string& fields,
                        const std::string& body = R"({"prompt":"abc"})") {
  client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\n" + fields +
              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  return client.receive();
}

HttpReply read_page(HttpClient& client, const std::string& path, const std::string& fields = "") {
  client.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n");
  return client.receive();
}

std::string startup_error(const std::vector<ApiKeyOptions>& options) {
  try {
    const KeyRing ring(options);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

ApiKey limited(const KeyQuota& quota) {
  return ApiKey{"alice", {}, false, 0, quota};
}

}  // namespace

TEST_CASE("keys are found by their hash, by variable and by file") {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("quire-key-" + std::to_string(::getpid()))).string();
  std::ofstream(file) << "carol-secret\n";
  ApiKeyOptions carol;
  carol.name = "carol";
  carol.file = file;
  const KeyRing ring({hashed("alice", kAliceHash), from_env("bob", "bob-secret"), carol});
  REQUIRE(ring.find("alice-secret") != nullptr);
  CHECK(ring.find("alice-secret")->name == "alice");
  REQUIRE(ring.find("bob-secret") != nullptr);
  CHECK(ring.find("bob-secret")->name == "bob");
  REQUIRE(ring.find("carol-secret") != nullptr);
  CHECK(ring.find("carol-secret")->name == "carol");
  CHECK(ring.find("carol-secret\n") == nullptr);
  CHECK(ring.find("") == nullptr);
  CHECK(ring.find(kAliceHash) == nullptr);
  std::remove(file.c_str());
}

TEST_CASE("a key whose variable or file is missing is refused by name") {
  ApiKeyOptions absent;
  absent.name = "dave";
  absent.env = "QUIRE_TEST_KEY_THAT_IS_NOT_SET";
  CHECK(startup_error({absent}).find("'QUIRE_TEST_KEY_THAT_IS_NOT_SET' of the key 'dave' is not set") !=
        std::string::npos);
  absent.env.clear();
  absent.file = "/nowhere/key";
  CHECK(startup_error({absent}).find("/nowhere/key") != std::string::npos);
  CHECK(startup_error({hashed("a", kAliceHash), hashed("b", kAliceHash)}).find("'a' and 'b' are the same key") !=
        std::string::npos);
  CHECK(startup_error({hashed("a", kAliceHash.substr(1))}).find("64 hexadecimal digits") != std::string::npos);
  CHECK(startup_error({hashed("a", kAliceHash + "0")}).find("64 hexadecimal digits") != std::string::npos);
}

TEST_CASE("where there are keys, a request without one is refused") {
  TestServer server({}, with_keys({hashed("alice", kAliceHash)}));
  HttpClient client(server.port());
  for (const std::string fields :
       {"", "Authorization: Bearer wrong\r\n", "Authorization: Basic alice-secret\r\n", "Authorization: Bearer\r\n",
        "x-api-key: wrong\r\n", "Authorization: alice-secret\r\n"}) {
    CAPTURE(fields);
    const HttpReply reply = complete_with(client, fields);
    CHECK(reply.status == 401);
    CHECK(reply.fields.count("www-authenticate") == 1);
    CHECK(Json::parse(reply.body)["error"]["code"] == "invalid_api_key");
  }
  CHECK(read_page(client, "/v1/models").status == 401);
  for (const std::string path : {"/livez", "/readyz", "/health", "/metrics", "/"})
    CHECK(read_page(client, path).status == 200);
}

TEST_CASE("either header opens, and the request carries the key's name") {
  TestServer server({}, with_keys({hashed("alice", kAliceHash)}));
  HttpClient client(server.port());
  for (const std::string fields : {"Authorization: Bearer alice-secret\r\n", "authorization: bearer   alice-secret\r\n",
                                   "X-Api-Key: alice-secret\r\n"}) {
    CAPTURE(fields);
    CHECK(complete_with(client, fields).status == 200);
    CHECK(server.engine().last_request()->key_name == "alice");
  }
  CHECK(read_page(client, "/v1/models", "x-api-key: alice-secret\r\n").status == 200);
  const std::string metrics = read_page(client, "/metrics", "x-api-key: alice-secret\r\n").body;
  CHECK(metrics.find(R"(quire:key_requests_total{code="200",key="alice"} 4)") != std::string::npos);
  CHECK(metrics.find(R"(quire:key_prompt_tokens_total{key="alice"})") != std::string::npos);
}

TEST_CASE("the metrics page can ask for a key, or an admin's") {
  ApiKeyOptions admin = from_env("root", "root-secret");
  admin.admin = true;
  {
    TestServer server({}, with_keys({hashed("alice", kAliceHash), admin}, PageAccess::kKey));
    HttpClient client(server.port());
    CHECK(read_page(client, "/metrics").status == 401);
    CHECK(read_page(client, "/metrics", "x-api-key: alice-secret\r\n").status == 200);
  }
  TestServer server({}, with_keys({hashed("alice", kAliceHash), admin}, PageAccess::kAdmin));
  HttpClient client(server.port());
  CHECK(read_page(client, "/metrics").status == 401);
  CHECK(read_page(client, "/metrics", "x-api-key: alice-secret\r\n").status == 403);
  CHECK(read_page(client, "/metrics", "x-api-key: root-secret\r\n").status == 200);
  CHECK(read_page(client, "/livez").status == 200);
}

TEST_CASE("requests per minute: a minute's worth at once, then as time passes") {
  QuotaTable table;
  const ApiKey key = limited({.requests_per_minute = 2});
  const Clock::time_point start{1000s};
  CHECK(table.admit(key, start));
  CHECK(table.admit(key, start));
  const auto refused = table.admit(key, start);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::kRateLimited);
  CHECK(refused.error().retry_after == 30s);
  CHECK_FALSE(table.admit(key, start + 29s));
  CHECK(table.admit(key, start + 30s));
  CHECK_FALSE(table.admit(key, start + 30s));
  // The bucket never holds more than a minute's worth.
  CHECK(table.admit(key, start + 3600s));
  CHECK(table.admit(key, start + 3600s));
  CHECK_FALSE(table.admit(key, start + 3600s));
}

TEST_CASE("tokens per minute: prompts first, answers may leave a debt") {
  QuotaTable table;
  const ApiKey key = limited({.tokens_per_minute = 60});
  const Clock::time_point start{1000s};
  auto lease = table.admit(key, start);
  REQUIRE(lease);
  CHECK(lease->take_prompt(40, 1, start));
  const auto too_much = lease->take_prompt(30, 1, start);
  REQUIRE_FALSE(too_much);
  CHECK(too_much.error().retry_after == 10s);
  const auto never = lease->take_prompt(61, 1, start);
  REQUIRE_FALSE(never);
  CHECK_FALSE(never.error().retry_after);
  lease->take_generated(50, start);
  const auto indebted = table.admit(key, start);
  REQUIRE_FALSE(indebted);
  CHECK(indebted.error().retry_after == 31s);
  CHECK(table.admit(key, start + 31s));
}

TEST_CASE("a key's concurrent requests are freed when they end") {
  QuotaTable table;
  const ApiKey key = limited({.max_concurrent = 1});
  const Clock::time_point now{1000s};
  {
    const auto first = table.admit(key, now);
    CHECK(first);
    CHECK_FALSE(table.admit(key, now));
  }
  CHECK(table.admit(key, now));
}

TEST_CASE("a key's rates are reported in OpenAI's headers") {
  QuotaTable table;
  const ApiKey key = limited({.requests_per_minute = 60, .tokens_per_minute = 600});
  const Clock::time_point now{1000s};
  auto lease = table.admit(key, now);
  REQUIRE(lease);
  CHECK(lease->take_prompt(100, 1, now));
  std::map<std::string, std::string> fields;
  for (const auto& [name, value] : table.headers(key, now))
    fields[name] = value;
  CHECK(fields == std::map<std::string, std::string>{{"x-ratelimit-limit-requests", "60"},
                                                     {"x-ratelimit-remaining-requests", "59"},
                                                     {"x-ratelimit-reset-requests", "1s"},
                                                     {"x-ratelimit-limit-tokens", "600"},
                                                     {"x-ratelimit-remaining-tokens", "500"},
                                                     {"x-ratelimit-reset-tokens", "10s"}});
  CHECK(table.headers(limited({.max_concurrent = 3}), now).empty());
}

TEST_CASE("a key over its share gets 429 and the connection stays") {
  TestServer server(
      {}, with_keys({from_env("bob", "bob-secret", {.requests_per_minute = 1}), hashed("alice", kAliceHash)}));
  HttpClient client(server.port());
  const std::string bob = "x-api-key: bob-secret\r\n";
  const HttpReply first = complete_with(client, bob);
  CHECK(first.status == 200);
  CHECK(first.fields.at("x-ratelimit-remaining-requests") == "0");
  const HttpReply second = complete_with(client, bob);
  CHECK(second.status == 429);
  CHECK(std::stoi(second.fields.at("retry-after")) >= 1);
  CHECK(second.fields.at("x-ratelimit-limit-requests") == "1");
  CHECK(Json::parse(second.body)["error"]["code"] == "rate_limit_exceeded");
  CHECK(complete_with(client, "x-api-key: alice-secret\r\n").status == 200);
  // Reading pages does not count against the quota.
  CHECK(read_page(client, "/v1/models", bob).status == 200);
}

TEST_CASE("a running stream holds its key's place until it ends") {
  TestServer server({}, with_keys({from_env("bob", "bob-secret", {.max_concurrent = 1})}));
  const std::string bob = "x-api-key: bob-secret\r\n";
  const std::string body = R"({"prompt":"abc","stream":true})";
  HttpClient first(server.port());
  HttpClient second(server.port());
  server.engine().hold(true);
  first.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\n" + bob + "Content-Length: " + std::to_string(body.size()) +
             "\r\n\r\n" + body);
  server.engine().wait_live(1);
  CHECK(complete_with(second, bob).status == 429);
  server.engine().hold(false);
  CHECK(first.receive().status == 200);
  CHECK(complete_with(second, bob).status == 200);
}

TEST_CASE("a client that has its answer finds it counted, and its place free") {
  TestServer server({}, with_keys({from_env("bob", "bob-secret", {.max_concurrent = 1})}));
  const std::string bob = "x-api-key: bob-secret\r\n";
  HttpClient clients[2] = {HttpClient(server.port()), HttpClient(server.port())};
  for (int i = 1; i <= 200; ++i) {
    const char* const body = i % 3 == 0 ? R"({"prompt":"abc"})" : R"({"prompt":"abc","stream":true})";
    REQUIRE(complete_with(clients[i % 2], bob, body).status == 200);
    const std::string metrics = read_page(clients[(i + 1) % 2], "/metrics", bob).body;
    const std::string number = std::to_string(i) + "\n";
    for (const std::string name : {"vllm:request_success_total{finished_reason=\"stop\",model_name=\"fake\"} ",
                                   "quire:key_requests_total{code=\"200\",key=\"bob\"} "}) {
      INFO(name << number);
      REQUIRE(metrics.find(name + number) != std::string::npos);
    }
  }
}

TEST_CASE("a key's context bound is the model's as far as it is concerned") {
  TestServer server({}, with_keys({from_env("bob", "bob-secret", {.max_context = 8}), hashed("alice", kAliceHash)}));
  HttpClient client(server.port());
  const std::string bob = "x-api-key: bob-secret\r\n";
  const std::string long_prompt = R"({"prompt":"abcdefghijklmnop","max_tokens":4})";
  const HttpReply refused = complete_with(client, bob, long_prompt);
  CHECK(refused.status == 400);
  CHECK(Json::parse(refused.body)["error"]["code"] == "context_length_exceeded");
  CHECK(complete_with(client, "x-api-key: alice-secret\r\n", long_prompt).status == 200);
  CHECK(complete_with(client, bob, R"({"prompt":"abc"})").status == 200);
  CHECK(server.engine().last_request()->sampling.max_tokens <= 5);
  CHECK(Json::parse(read_page(client, "/v1/models", bob).body)["data"][0]["max_model_len"] == 8);
}

TEST_CASE("other sites' pages may use the API where their origin is allowed") {
  ServerOptions options = with_keys({hashed("alice", kAliceHash)});
  options.cors.origins = {"https://chat.example"};
  TestServer server({}, options);
  HttpClient client(server.port());
  const std::string preflight =
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: a\r\nAccess-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization, content-type\r\nOrigin: ";
  client.send(preflight + "https://chat.example\r\n\r\n");
  const HttpReply allowed = client.receive();
  CHECK(allowed.status == 204);
  CHECK(allowed.fields.at("access-control-allow-origin") == "https://chat.example");
  CHECK(allowed.fields.at("access-control-allow-methods").find("POST") != std::string::npos);
  CHECK(allowed.fields.at("access-control-allow-headers") == "authorization, content-type");
  client.send(preflight + "https://evil.example\r\n\r\n");
  const HttpReply refused = client.receive();
  CHECK(refused.status == 403);
  CHECK(refused.fields.count("access-control-allow-origin") == 0);
  // The page can read errors too, or it could not tell why.
  const HttpReply denied = complete_with(client, "Origin: https://chat.example\r\n");
  CHECK(denied.status == 401);
  CHECK(denied.fields.at("access-control-allow-origin") == "https://chat.example");
  const HttpReply served = complete_with(client, "Origin: https://chat.example\r\nx-api-key: alice-secret\r\n");
  CHECK(served.status == 200);
  CHECK(served.fields.at("vary") == "Origin");
  CHECK(complete_with(client, "Origin: https://evil.example\r\nx-api-key: alice-secret\r\n")
            .fields.count("access-control-allow-origin") == 0);
}
