// Separation of tenants: shares of storage, ids, quotas, keys that a reload replaces.
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>

#include "core/base/files/writing.h"
#include "core/kv/tiers/tier_record.h"
#include "server/admin/handlers.h"
#include "server/ops/stream_store.h"
#include "server/state/server_parts.h"
#include "server/state/settings.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace tenants {

ApiKeyOptions key_of(const std::string& name, const std::string& secret) {
  const std::string variable = "QUIRE_TEST_TENANT_" + secret;
  ::setenv(variable.c_str(), secret.c_str(), 1);
  ApiKeyOptions key;
  key.name = name;
  key.env = variable;
  return key;
}

HttpReply ask_as_tenant(HttpClient& client, const std::string& method, const std::string& path, const std::string& key,
                        const std::string& body = "", const std::string& fields = "") {
  client.send(method + " " + path + " HTTP/1.1\r\nHost: a\r\nx-api-key: " + key + "\r\n" + fields +
              (method == "POST" ? "Content-Length: " + std::to_string(body.size()) + "\r\n" : "") + "\r\n" + body);
  return client.receive();
}

StoredResponse stored(const std::string& id, const std::string& owner, std::size_t num_bytes = 10) {
  return {id, owner, "", std::string(num_bytes, 'x'), {}, {}};
}

}  // namespace tenants

using namespace tenants;

TEST_CASE("an owner that stores much loses what is its own, by number and by bytes") {
  ResponseStore by_count({4, 1 << 20});
  by_count.put(stored("b1", "bob"));
  by_count.put(stored("b2", "bob"));
  for (int i = 0; i < 100; ++i)
    by_count.put(stored("a" + std::to_string(i), "alice"));
  CHECK(by_count.count() == 4);
  CHECK(by_count.find("b1", "bob"));
  CHECK(by_count.find("b2", "bob"));
  CHECK(by_count.find("a99", "alice"));
  CHECK_FALSE(by_count.find("a97", "alice"));
  // A third owner's charges cut those of owners with more than a third.
  by_count.put(stored("c1", "carol"));
  CHECK(by_count.find("c1", "carol"));
  CHECK(by_count.count() == 4);

  ResponseStore by_bytes({1000, 100'000});
  by_bytes.put(stored("b1", "bob", 20'000));
  for (int i = 0; i < 100; ++i)
    by_bytes.put(stored("a" + std::to_string(i), "alice", 30'000));
  CHECK(by_bytes.find("b1", "bob"));
  CHECK(by_bytes.find("a99", "alice"));
}

TEST_CASE("one id of two owners names two things") {
  ResponseStore store({8, 1 << 20});
  store.put(stored("chatcmpl-same", "alice", 10));
  store.put(stored("chatcmpl-same", "bob", 20));
  REQUIRE(store.find("chatcmpl-same", "alice"));
  REQUIRE(store.find("chatcmpl-same", "bob"));
  CHECK(store.find("chatcmpl-same", "alice")->body.size() == 10);
  CHECK(store.erase("chatcmpl-same", "bob"));
  CHECK(store.find("chatcmpl-same", "alice"));
}

TEST_CASE("WebSockets' last responses share one bound, and go with their connections") {
  const auto store = std::make_shared<ResponseStore>(ResponseStoreOptions{100, 100'000});
  {
    SocketMemory first(store, "alice");
    SocketMemory second(store, "alice");
    first.put(stored("resp_1", "alice", 10'000));
    first.put(stored("resp_2", "alice", 10'000));
    CHECK_FALSE(first.find("resp_1"));
    CHECK(first.find("resp_2"));
    CHECK_FALSE(second.find("resp_2"));
    std::vector<std::unique_ptr<SocketMemory>> others;
    for (int i = 0; i < 60; ++i) {
      others.push_back(std::make_unique<SocketMemory>(store, "alice"));
      others.back()->put(stored("resp_o" + std::to_string(i), "alice", 10'000));
    }
    CHECK(store->count() < 10);
    CHECK(others.back()->find("resp_o59"));
  }
  CHECK(store->count() == 0);
}

TEST_CASE("a key that a reload replaces or removes takes its saved streams with it; others keep theirs") {
  ServerOptions options = test_options();
  options.security.keys = {key_of("alice", "old"), key_of("bob", "bob"), key_of("carol", "carol")};
  ServerParts parts(options);
  ServerState& state = parts.state;
  state.streams.set_max_bytes(1000);
  const auto now = Clock::now();
  const auto replaced = state.streams.open("alice", "r", now);
  const auto removed = state.streams.open("carol", "r", now);
  int num_woken = 0;
  CHECK(replaced->after(0, [&] { ++num_woken; }).events.empty());
  state.streams.open("bob", "r", now);
  options.security.keys = {key_of("alice", "new"), key_of("bob", "bob")};
  state.set_settings(std::make_shared<const Settings>(options));
  CHECK(num_woken == 1);
  CHECK(replaced->after(0, nullptr).lost);
  CHECK(removed->after(0, nullptr).lost);
  CHECK_FALSE(state.streams.find("alice", "r", now));
  CHECK_FALSE(state.streams.find("carol", "r", now));
  CHECK(state.streams.find("bob", "r", now));
}

TEST_CASE("the saved streams of one key take half of the memory at most") {
  StreamStore store;
  store.set_max_bytes(200);
  const auto now = Clock::now();
  const std::string event = "data: " + std::string(60, 'x') + "\n\n";
  const auto first = store.open("alice", "r1", now);
  first->append(event);
  const auto second = store.open("alice", "r2", now);
  second->append(event);
  CHECK_FALSE(first->after(0, nullptr).lost);
  CHECK(second->after(0, nullptr).lost);
  const auto other = store.open("bob", "r1", now);
  other->append(event);
  CHECK_FALSE(other->after(0, nullptr).lost);
}

TEST_CASE("a saved stream is read in slices") {
  StreamStore store;
  store.set_max_bytes(10 << 20);
  const auto stream = store.open("", "r", Clock::now());
  for (int i = 0; i < 64; ++i)
    stream->append("data: " + std::string(10'000, 'x') + "\n\n");
  stream->finish();
  std::size_t number = 0;
  std::size_t num_slices = 0;
  SavedStream::Rest rest;
  do {
    rest = stream->after(number, nullptr);
    CHECK(rest.events.size() < SavedStream::kSlice + 20'000);
    number = rest.last;
    ++num_slices;
  } while (!rest.finished);
  CHECK(number == 64);
  CHECK(num_slices > 3);
}

TEST_CASE("requests per minute count on every route, a resumed stream's too; only what runs holds a place") {
  ServerOptions options = test_options();
  options.resume.window = std::chrono::seconds(60);
  options.security.keys = {key_of("alice", "rates"), key_of("bob", "places")};
  options.security.keys[0].quota.requests_per_minute = 4;
  options.security.keys[1].quota.max_concurrent = 1;
  TestServer server(says("x"), options);
  HttpClient client(server.port());
  CHECK(ask_as_tenant(client, "POST", "/v1/conversations", "rates", "{}").status == 200);
  CHECK(ask_as_tenant(client, "GET", "/v1/conversations/conv_0", "rates").status == 404);
  CHECK(ask_as_tenant(client, "DELETE", "/v1/conversations/conv_0", "rates").status == 404);
  CHECK(ask_as_tenant(client, "POST", "/v1/completions", "rates", R"({"prompt":"a","stream":true})",
                      "X-Request-Id: r\r\nLast-Event-ID: 1\r\n")
            .status == 404);
  CHECK(ask_as_tenant(client, "GET", "/v1/conversations/conv_0", "rates").status == 429);
  CHECK(ask_as_tenant(client, "POST", "/v1/completions", "rates", R"({"prompt":"a","stream":true})",
                      "X-Request-Id: r\r\nLast-Event-ID: 1\r\n")
            .status == 429);
  CHECK(ask_as_tenant(client, "GET", "/v1/models", "rates").status == 200);
  server.engine().hold(true);
  HttpClient running(server.port());
  const std::string body = R"({"prompt":"a"})";
  running.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nx-api-key: places\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  server.engine().wait_live(1);
  CHECK(ask_as_tenant(client, "GET", "/v1/conversations/conv_0", "places").status == 404);
  CHECK(ask_as_tenant(client, "POST", "/v1/completions", "places", body).status == 429);
  server.engine().hold(false);
}

TEST_CASE("a request without a priority has its key's class, where that is below the usual one") {
  ServerOptions options = test_options();
  options.security.keys = {key_of("bulk", "bulk"), key_of("first", "first")};
  options.security.keys[0].priority = 5;
  options.security.keys[1].priority = -5;
  TestServer server(says("x"), options);
  HttpClient client(server.port());
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  CHECK(ask_as_tenant(client, "POST", "/v1/completions", "bulk", body).status == 200);
  CHECK(server.engine().last_request()->priority == 5);
  CHECK(ask_as_tenant(client, "POST", "/v1/completions", "first", body).status == 200);
  CHECK(server.engine().last_request()->priority == 0);
}

TEST_CASE("a request's id is shown to its owner and to admins") {
  const ReportReader stranger;
  const ReportReader keyless{.sees_keys = true};
  const ReportReader alice{.sees_keys = true, .key_name = "alice"};
  const ReportReader admin{.sees_keys = true, .sees_all = true};
  CHECK_FALSE(stranger.sees_id_of(""));
  CHECK_FALSE(stranger.sees_id_of("alice"));
  CHECK_FALSE(keyless.sees_id_of(""));
  CHECK(alice.sees_id_of("alice"));
  CHECK_FALSE(alice.sees_id_of("bob"));
  CHECK(admin.sees_id_of("bob"));
}

TEST_CASE("files that hold what clients said are for the daemon's user alone, whatever its umask") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("quire-tenants-" + std::to_string(::getpid()));
  const mode_t before = ::umask(0);
  const std::shared_ptr<void> at_end(nullptr, [&](void*) {
    ::umask(before);
    fs::remove_all(folder);
  });
  std::error_code failed;
  make_private_folder(folder, failed);
  REQUIRE_FALSE(failed);
  CHECK(fs::status(folder).permissions() == fs::perms::owner_all);
  TierRecord record;
  record.payload = std::make_shared<const std::vector<std::byte>>(10);
  REQUIRE_FALSE(write_record(folder / "record", record));
  CHECK(fs::status(folder / "record").permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}
