#include "server/gate/browser_guard.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "server/ops/keys/failure_limiter.h"
#include "server/serve.h"
#include "tests/server/models/models_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

ApiKeyOptions key_from_env(const std::string& name, const std::string& secret) {
  const std::string variable = "QUIRE_GUARD_KEY_" + name;
  ::setenv(variable.c_str(), secret.c_str(), 1);
  ApiKeyOptions key;
  key.name = name;
  key.env = variable;
  return key;
}

int status_of(std::uint16_t port, const std::string& request) {
  HttpClient client(port);
  client.send(request);
  return client.receive().status;
}

std::string sleep_order(const std::string& fields, const std::string& body = R"({"name":"one"})") {
  return "POST /admin/models/sleep HTTP/1.1\r\n" + fields + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

}  // namespace

TEST_CASE("names that an outsider cannot have made lead here are trusted, others where they are listed") {
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "[::1]", "quire",
                           "quire:80", "10.1.2.3", "printer.local", "quire.default.svc.cluster.local:8080",
                           "QUIRE.INTERNAL", "app.localhost", "quire.home.arpa", ""}) {
    INFO(host);
    CHECK(is_trusted_host(host, {}));
  }
  for (const char* host : {"evil.example.com", "rebind.it:8080", "127.0.0.1.nip.io", "local.evil.org", "a.localx"}) {
    INFO(host);
    CHECK_FALSE(is_trusted_host(host, {}));
    CHECK(is_trusted_host(host, {"*"}));
  }
  CHECK(is_trusted_host("LLM.Example.com:443", {"llm.example.com"}));
  CHECK_FALSE(is_trusted_host("llm.example.org", {"llm.example.com"}));
}

TEST_CASE("a JSON body without a type, or with curl's, is read where no page can have sent it") {
  TestServer server;
  const auto ask = [&](const std::string& fields) {
    const std::string body = R"({"prompt":"x","max_tokens":1})";
    return status_of(server.port(), "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n" + fields +
                                        "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  };
  const std::string form = "Content-Type: application/x-www-form-urlencoded\r\n";
  CHECK(ask("") == 200);
  CHECK(ask("User-Agent: curl/7.88.1\r\nAccept: */*\r\n" + form) == 200);
  CHECK(ask("Content-Type: Application/X-WWW-Form-Urlencoded; charset=UTF-8\r\n") == 200);
  for (const char* mark :
       {"Origin: https://evil.example.com\r\n", "Origin: null\r\n", "Referer: https://evil.example.com/\r\n",
        "Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Mode: no-cors\r\n", "Cookie: a=b\r\n",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n"}) {
    INFO(mark);
    CHECK(ask(mark + form) == 415);
  }
  CHECK(ask("Origin: https://evil.example.com\r\n") == 415);
  CHECK(ask("Sec-Fetch-Site: cross-site\r\n") == 415);
  CHECK(ask("Content-Type: text/plain\r\n") == 415);
  CHECK(ask("Content-Type: multipart/form-data\r\n") == 415);
}

TEST_CASE("a rebound host name does not read a keyless API; with a key the name does not matter") {
  const std::string ask = "GET /v1/models HTTP/1.1\r\nHost: evil.example.com\r\n";
  {
    TestServer server;
    CHECK(status_of(server.port(), ask + "\r\n") == 403);
    CHECK(status_of(server.port(), "GET /livez HTTP/1.1\r\nHost: evil.example.com\r\n\r\n") == 200);
  }
  {
    ServerOptions options = test_options();
    options.security.allowed_hosts = {"evil.example.com"};
    TestServer server({}, options);
    CHECK(status_of(server.port(), ask + "\r\n") == 200);
  }
  ServerOptions options = test_options();
  options.security.keys = {key_from_env("alice", "guard-alice")};
  TestServer server({}, options);
  CHECK(status_of(server.port(), ask + "x-api-key: guard-alice\r\n\r\n") == 200);
}

TEST_CASE("a web page cannot order anything of the admin listener") {
  ServerOptions options = test_options();
  options.admin_listen = "127.0.0.1:0";
  ModelsServer server({fake_spec("one", "first")}, kPlenty, options);
  const std::uint16_t port = server.server().admin_port();
  const std::string host = "Host: 127.0.0.1:" + std::to_string(port) + "\r\n";
  const std::string json = "Content-Type: application/json\r\n";
  // Requests that a page can send without asking first.
  CHECK(status_of(port, sleep_order(host + "Origin: https://evil.example.com\r\nContent-Type: text/plain\r\n")) == 403);
  CHECK(status_of(port, sleep_order(host + "Origin: null\r\n" + json)) == 403);
  CHECK(status_of(port, sleep_order(host + "Sec-Fetch-Site: cross-site\r\n" + json)) == 403);
  CHECK(status_of(port, sleep_order(host + "Content-Type: text/plain\r\n")) == 415);
  CHECK(status_of(port, sleep_order(host)) == 415);
  CHECK(status_of(port, sleep_order("Host: evil.example.com\r\n" + json)) == 403);
  CHECK(server.state("one") == ModelState::kReady);
  // Requests that tools and the server's own page send.
  CHECK(status_of(port, "POST /sleep HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n") == 200);
  CHECK(server.state("one") == ModelState::kSleeping);
  CHECK(status_of(port, "POST /wake_up HTTP/1.1\r\n" + host + "Origin: http://127.0.0.1:" + std::to_string(port) +
                            "\r\nContent-Length: 0\r\n\r\n") == 200);
}

TEST_CASE("an admin loads models from below the models' folder only") {
  ServerOptions options = test_options();
  options.security.keys = {key_from_env("root", "guard-root")};
  options.security.keys.front().admin = true;
  options.model_root = "/srv/models";
  ModelsServer server({fake_spec("one", "/srv/models/one")}, kPlenty, options);
  const auto load = [&](const std::string& path, const std::string& more = "") {
    const std::string body = R"({"name":"two","kv_memory":16777216,"path":")" + path + "\"" + more + "}";
    return status_of(server.port(),
                     "POST /admin/models/load HTTP/1.1\r\nHost: a\r\nx-api-key: guard-root\r\n"
                     "Content-Type: application/json\r\nContent-Length: " +
                         std::to_string(body.size()) + "\r\n\r\n" + body);
  };
  for (const char* path : {"/etc/shadow", "/srv/modelsx/two", "/srv/models/../two", "two"})
    CHECK(load(path) == 403);
  CHECK(load("/srv/models/two", R"(,"chat_template":"/etc/passwd")") == 403);
  CHECK(load("/srv/models/two", R"(,"packed_cache":"/etc")") == 403);
  CHECK(load("/srv/models/deeper/two") == 200);
}

TEST_CASE("a key's requests are no more urgent than its class") {
  ServerOptions options = test_options();
  options.security.keys = {key_from_env("bulk", "guard-bulk"), key_from_env("first", "guard-first")};
  options.security.keys[0].priority = 5;
  options.security.keys[1].priority = -10;
  TestServer server(says("x"), options);
  const auto ask = [&](const std::string& key, int priority) {
    const std::string body = R"({"prompt":"a","max_tokens":1,"priority":)" + std::to_string(priority) + "}";
    return status_of(server.port(), "POST /v1/completions HTTP/1.1\r\nHost: a\r\nx-api-key: " + key +
                                        "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  };
  CHECK(ask("guard-bulk", 5) == 200);
  CHECK(ask("guard-bulk", 4) == 400);
  CHECK(ask("guard-first", -10) == 200);
  CHECK(ask("guard-first", -11) == 400);
}

TEST_CASE("an address without a valid key is slowed down, one with a key is not") {
  ServerOptions options = test_options();
  options.security.keys = {key_from_env("alice", "guard-alice")};
  options.security.max_failures_per_minute = 3;
  TestServer server(says("x"), options);
  const auto list = [&](const std::string& key) {
    return status_of(server.port(), "GET /v1/models HTTP/1.1\r\nHost: a\r\nx-api-key: " + key + "\r\n\r\n");
  };
  for (int i = 0; i < 3; ++i)
    CHECK(list("guess" + std::to_string(i)) == 401);
  CHECK(list("guess3") == 429);
  CHECK(list("guard-alice") == 200);
}

TEST_CASE("failures are counted by address and forgiven with time; the table is bounded") {
  FailureLimiter limiter;
  const Clock::time_point start{};
  for (int i = 0; i < 60; ++i)
    CHECK_FALSE(limiter.count("a", 60, start));
  CHECK(limiter.count("a", 60, start) == 1s);
  CHECK_FALSE(limiter.count("b", 60, start));
  CHECK_FALSE(limiter.count("a", 60, start + 1s));
  CHECK(limiter.count("a", 60, start + 1s) == 1s);
  for (int i = 0; i < 2 * static_cast<int>(FailureLimiter::kMostAddresses); ++i)
    limiter.count(std::to_string(i), 60, start + 1s);
  CHECK(limiter.count("a", 60, start + 1s));
  CHECK_FALSE(limiter.count("a", 0, start + 1s));
}

TEST_CASE("tenants are named in the metrics only to who shows a key") {
  ServerOptions options = test_options();
  options.security.keys = {key_from_env("alice", "guard-alice")};
  TestServer server(says("x"), options);
  const auto metrics = [&](const std::string& fields) {
    HttpClient client(server.port());
    client.send("GET /metrics HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n");
    return client.receive().body;
  };
  CHECK(status_of(server.port(), "GET /v1/models HTTP/1.1\r\nHost: a\r\nx-api-key: guard-alice\r\n\r\n") == 200);
  CHECK(metrics("").find("vllm:") != std::string::npos);
  CHECK(metrics("").find("alice") == std::string::npos);
  CHECK(metrics("x-api-key: wrong\r\n").find("alice") == std::string::npos);
  CHECK(metrics("x-api-key: guard-alice\r\n").find(R"(key="alice")") != std::string::npos);
}

TEST_CASE("a keyless server beyond its machine starts with a warning, or not at all") {
  ServerOptions options;
  options.host = "0.0.0.0";
  CHECK_NOTHROW(check_exposure(options));
  options.security.keyless = Exposure::kRefuse;
  CHECK_THROWS_AS(check_exposure(options), StartupError);
  options.host = "127.0.0.1";
  CHECK_NOTHROW(check_exposure(options));
  options.host = "0.0.0.0";
  options.security.keys = {key_from_env("alice", "guard-alice")};
  CHECK_NOTHROW(check_exposure(options));
}

TEST_CASE("keys do not share cached blocks, whether they were there at the start or not, unless configured") {
  ServeOptions options;
  const auto isolates = [&] { return engine_options(options).kv_cache.isolate_by_key; };
  CHECK(isolates());
  options.server.security.keys = {key_from_env("alice", "guard-alice")};
  CHECK(isolates());
  options.isolation = Isolation::kNone;
  CHECK_FALSE(isolates());
}
