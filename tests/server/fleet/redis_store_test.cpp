#include "server/fleet/redis_store.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "core/base/result.h"
#include "server/fleet/redis_url.h"
#include "tests/server/fleet/fake_redis.h"
#include "tests/support/temporary_folder.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

constexpr ChainKey kModel{7, 8};

TierRecord record_of(std::uint64_t key, std::size_t size = 64) {
  return {.fingerprint = kModel,
          .key = {key, key},
          .parent = {key - 1, key - 1},
          .position = 3,
          .content = {.tokens = std::vector<TokenId>(16, TokenId{static_cast<int>(key)})},
          .payload = std::make_shared<const std::vector<std::byte>>(size, static_cast<std::byte>(key))};
}

// A store with its answers as the engine takes them: it waits where the engine would sleep.
struct Client {
  explicit Client(const std::string& url, RedisStoreOptions options = {})
      : store(with(std::move(options), url), [this] { note_ready(); }) {}
  static RedisStoreOptions with(RedisStoreOptions options, const std::string& url) {
    options.server.url = url;
    options.server.first_pause = std::min(options.server.first_pause, std::chrono::milliseconds(20));
    options.server.longest_pause = std::min(options.server.longest_pause, std::chrono::milliseconds(40));
    return options;
  }

  void note_ready() {
    const std::lock_guard lock(mutex);
    ++num_ready;
    changed.notify_all();
  }
  // Checks the condition whenever the store signals, and at intervals otherwise.
  template <class Condition>
  void wait_for(Condition condition) {
    std::unique_lock lock(mutex);
    const auto late = std::chrono::steady_clock::now() + 60s;
    while (!condition()) {
      REQUIRE(std::chrono::steady_clock::now() < late);
      changed.wait_for(lock, 5ms);
      lock.unlock();
      store.take_events(events, 512);
      store.take_look_ups(answers);
      lock.lock();
    }
  }
  void wait_up() {
    wait_for([this] { return store.is_up(); });
  }
  TierEvent write(TierRecord record, bool only_if_absent = false) {
    const ChainKey key = record.key;
    TierEvents write;
    write.push_back(
        {.kind = TierEvent::Kind::kWritten, .key = key, .record = std::move(record), .only_if_absent = only_if_absent});
    store.write(std::move(write));
    return answered();
  }
  void ask(std::uint64_t key, const ChainKey& fingerprint = kModel) {
    TierEvents read;
    read.push_back({.kind = TierEvent::Kind::kRead, .key = {key, key}});
    read.front().record.fingerprint = fingerprint;
    store.read(std::move(read));
  }
  BlockPayload read(std::uint64_t key, const ChainKey& fingerprint = kModel) {
    ask(key, fingerprint);
    return answered().record.payload;
  }
  TierEvent answered() {
    wait_for([this] { return !events.empty(); });
    TierEvent event = std::move(events.front());
    events.pop_front();
    return event;
  }
  std::vector<std::int64_t> look_up(const std::vector<std::uint64_t>& keys) {
    KeyLookUps asked;
    asked.push_back({.id = 1, .fingerprint = kModel});
    for (const std::uint64_t key : keys)
      asked.front().keys.push_back({key, key});
    store.look_up(std::move(asked));
    wait_for([this] { return !answers.empty(); });
    std::vector<std::int64_t> sizes = answers.front().record_bytes;
    answers.pop_front();
    return sizes;
  }

  std::mutex mutex;
  std::condition_variable changed;
  int num_ready = 0;
  TierEvents events;
  KeyLookUps answers;
  RedisStore store;
};

}  // namespace

TEST_CASE("a URL of a store says where it is and as which user to ask it") {
  const auto url = parse_redis_url("rediss://kv:p%40ss@[::1]:7000/3");
  REQUIRE(url);
  CHECK((url->secure && url->user == "kv" && url->password == "p@ss" && url->host == "::1" && url->port == "7000"));
  CHECK(url->database == 3);
  CHECK(url->place() == "[::1]:7000/3");
  CHECK(parse_redis_url("redis://a")->port == "6379");
  CHECK(parse_redis_url("redis://:secret@a/")->password == "secret");
  for (const char* bad : {"", "a", "http://a", "redis://", "redis://a/x", "redis://a/1/2", "redis://a/-1",
                          "redis://u@a", "redis://a?b", "redis://a b"}) {
    INFO(bad);
    CHECK_FALSE(parse_redis_url(bad));
    CHECK_THROWS_AS(RedisStore(RedisStoreOptions{.server = {.url = bad}}, [] {}), StartupError);
  }
}

TEST_CASE("records are written to a store and read from it, plain and over TLS, as a user, in a database") {
  const bool secure = GENERATE(false, true);
  FakeRedis redis(secure);
  Client client(redis.url("kv:secret@", "/2"),
                {.server = {.ca = secure ? certificate().certificate : ""}, .ttl = 1'500ms});
  client.wait_up();
  CHECK(redis.commands().at(0) == FakeRedis::Words{"AUTH", "kv", "secret"});
  CHECK(redis.commands().at(1) == FakeRedis::Words{"SELECT", "2"});
  CHECK(client.write(record_of(1)).kind == TierEvent::Kind::kWritten);
  const FakeRedis::Words set = redis.commands().back();
  CHECK(set[1] == "quire:00000000000000080000000000000007:00000000000000010000000000000001");
  CHECK(FakeRedis::Words(set.begin() + 3, set.end()) == FakeRedis::Words{"EX", "2"});
  const std::int64_t size = record_bytes(record_of(1));
  CHECK(client.look_up({1, 2, 1}) == std::vector<std::int64_t>{size, 0, size});
  REQUIRE(client.read(1) != nullptr);
  CHECK(*client.read(1) == *record_of(1).payload);
  CHECK(client.read(2) == nullptr);
  CHECK(client.store.stats().num_read == 2);
  CHECK(client.store.stats().num_failures == 0);
  // A smaller record does not take the place of a larger one.
  CHECK(client.write(record_of(1, 128)).kind == TierEvent::Kind::kWritten);
  CHECK(client.write(record_of(1, 64), true).kind == TierEvent::Kind::kWritten);
  CHECK(client.read(1)->size() == 128);
}

TEST_CASE("a URL may lie in a file, which ends with a line break or not") {
  FakeRedis redis;
  const TemporaryFolder folder;
  const std::string path = (folder / "url").string();
  const auto of_file = [&](const std::string& text) {
    folder.write("url", text);
    return RedisStoreOptions{.server = {.url_file = path}};
  };
  for (const char* end : {"", "\n", "\r\n"}) {
    Client client("", of_file(redis.url("kv:secret@") + end));
    client.wait_up();
    CHECK(client.write(record_of(1)).kind == TierEvent::Kind::kWritten);
  }
  CHECK(redis.commands().at(0) == FakeRedis::Words{"AUTH", "kv", "secret"});
  for (const char* bad : {"", "\n", "redis://a b", "secret"}) {
    INFO(bad);
    CHECK_THROWS_WITH(check_store_options(of_file(bad)),
                      Catch::StartsWith("kv_cache.shared.url_file: it is not redis"));
  }
  RedisStoreOptions both = of_file(redis.url());
  both.server.url = redis.url();
  CHECK_THROWS_AS(check_store_options(both), StartupError);
  CHECK_THROWS_WITH(check_store_options({.server = {.url_file = path + "x"}}),
                    Catch::EndsWith("cannot be opened: No such file or directory"));
  CHECK_NOTHROW(check_store_options({}));
}

TEST_CASE("a server that no authority speaks for is no store") {
  FakeRedis redis(true);
  Client client(redis.url());
  client.wait_for([&] { return client.store.stats().num_failures >= 2; });
  CHECK_FALSE(client.store.is_up());
  CHECK(redis.commands().empty());
}

TEST_CASE("what lies in the store and is not the record that was asked for is a miss") {
  FakeRedis redis;
  Client client(redis.url());
  client.wait_up();
  client.write(record_of(1));
  client.write(record_of(2));
  auto values = redis.values();
  REQUIRE(values.size() == 2);
  const std::string first = values.begin()->second;
  const auto is_read = [&](const std::string& bytes) {
    values.begin()->second = bytes;
    redis.set_values(values);
    return client.read(1) != nullptr;
  };
  REQUIRE(is_read(first));
  CHECK_FALSE(is_read(values.rbegin()->second));
  CHECK_FALSE(is_read(""));
  CHECK_FALSE(is_read(first + "x"));
  for (std::size_t size = 0; size < first.size(); ++size)
    CHECK_FALSE(is_read(first.substr(0, size)));
  for (std::size_t bit = 0; bit < first.size() * 8; bit += 3) {
    std::string damaged = first;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    CHECK_FALSE(is_read(damaged));
  }
  // Under the name that another model's record would have.
  auto moved = redis.values();
  moved["quire:00000000000000080000000000000009:00000000000000010000000000000001"] = first;
  redis.set_values(moved);
  CHECK(client.read(1, {9, 8}) == nullptr);
  CHECK(client.store.is_up());
  CHECK(client.store.stats().num_failures == 0);
}

TEST_CASE("a store that answers with anything but replies is given up, and what was asked is answered") {
  const std::string garbage = GENERATE(as<std::string>{}, "HTTP/1.1 400 Bad Request\r\n\r\n", "*2\r\n+a\r\n+b\r\n",
                                       "*-1\r\n*9999999\r\n", ":1:\r\nx\r\n", "$99999999999\r\n", "$-7\r\n",
                                       std::string(300'000, 'x'), FakeRedis::kClose, "+OK\r\n+OK\r\n+OK\r\n");
  FakeRedis redis;
  Client client(redis.url());
  client.wait_up();
  client.write(record_of(1));
  redis.behave([garbage](const FakeRedis::Words& words, const std::string& reply) {
    return words[0] == "PING" ? reply : garbage;
  });
  CHECK(client.read(1) == nullptr);
  client.wait_for([&] { return client.store.stats().num_failures > 0; });
  redis.behave({});
  client.wait_up();
  CHECK(client.read(1) != nullptr);
}

TEST_CASE("a store that stops answering is noticed, nothing waits for it, and it is used again once it answers") {
  FakeRedis redis;
  Client client(redis.url(), {.server = {.patience = 50ms}});
  client.wait_up();
  client.write(record_of(1));
  redis.behave([](const FakeRedis::Words&, const std::string&) { return ""; });
  client.ask(1);
  client.ask(2);
  CHECK(client.look_up({1}).empty());
  CHECK(client.answered().record.payload == nullptr);
  CHECK(client.answered().record.payload == nullptr);
  client.wait_for([&] { return client.store.stats().num_failures >= 3; });  // connecting again fails too
  // The request is answered at once, without another patience: the store is not asked.
  CHECK_FALSE(client.store.is_up());
  CHECK_FALSE(client.store.can_take(1));
  CHECK(client.write(record_of(3)).kind == TierEvent::Kind::kLost);
  CHECK(client.store.wait_idle(std::chrono::steady_clock::now()));
  redis.behave({});
  client.wait_up();
  CHECK(client.read(1) != nullptr);
}

TEST_CASE("a store that stops answering is noticed on an idle connection") {
  FakeRedis redis;
  Client client(redis.url(), {.server = {.patience = 50ms}});
  client.wait_up();
  redis.behave([](const FakeRedis::Words&, const std::string&) { return ""; });
  client.wait_for([&] { return !client.store.is_up(); });
  redis.behave({});
  client.wait_up();
}

TEST_CASE("a store whose replies keep coming, each of them late, is given up like one that is silent") {
  using Clock = std::chrono::steady_clock;
  std::deque<std::pair<Clock::time_point, std::string>> due;
  const Clock::time_point begin = Clock::now();
  FakeRedis redis;
  Client client(redis.url(), {.server = {.patience = 50ms}});
  client.wait_up();
  // Half of the time since `begin`, at most 200 ms: replies never stop for long.
  redis.behave([&](const FakeRedis::Words&, const std::string& reply) {
    const Clock::time_point now = Clock::now();
    due.emplace_back(now + std::min<Clock::duration>((now - begin) / 2, 200ms) + 1ms, reply);
    std::string out;
    for (; due.front().first <= Clock::now(); due.pop_front())
      out += due.front().second;
    return out;
  });
  client.wait_for([&] {
    if (client.store.is_up()) client.ask(1);
    return client.store.stats().num_failures >= 1;
  });
  redis.behave({});
  client.wait_up();
}

TEST_CASE("a store that is full, or refuses writes, is read and written again later") {
  FakeRedis redis;
  Client client(redis.url(), {.refusal_pause = 30ms});
  client.wait_up();
  client.write(record_of(1));
  redis.behave([](const FakeRedis::Words& words, const std::string& reply) {
    return words[0] == "SET" ? "-OOM command not allowed when used memory > 'maxmemory'.\r\n" : reply;
  });
  CHECK(client.write(record_of(2)).kind == TierEvent::Kind::kLost);
  CHECK(client.read(1) != nullptr);
  CHECK(client.store.is_up());
  CHECK(client.store.stats().num_failures == 0);
  redis.behave({});
  client.wait_for([&] { return client.store.can_take(64); });
  CHECK(client.write(record_of(2)).kind == TierEvent::Kind::kWritten);
}

TEST_CASE("a store that refuses its user, or to be read, is not used") {
  FakeRedis redis;
  SECTION("AUTH") {
    redis.behave([](const FakeRedis::Words& words, const std::string& reply) {
      return words[0] == "AUTH" ? "-WRONGPASS invalid username-password pair\r\n" : reply;
    });
    Client client(redis.url("a:b@"));
    client.wait_for([&] { return client.store.stats().num_failures >= 2; });
    CHECK_FALSE(client.store.is_up());
  }
  SECTION("it still loads its data") {
    redis.behave([](const FakeRedis::Words&, const std::string&) { return "-LOADING Redis is loading\r\n"; });
    Client client(redis.url());
    client.wait_for([&] { return client.store.stats().num_failures >= 2; });
    redis.behave({});
    client.wait_up();
  }
  SECTION("GET") {
    Client client(redis.url());
    client.wait_up();
    redis.behave([](const FakeRedis::Words& words, const std::string& reply) {
      return words[0] == "GET" ? "-NOPERM no permissions\r\n" : reply;
    });
    CHECK(client.read(1) == nullptr);
    client.wait_for([&] { return client.store.stats().num_failures >= 1; });
  }
  SECTION("a key of another type is a miss and no more") {
    redis.behave([](const FakeRedis::Words& words, const std::string& reply) {
      return words[0] == "PING" ? reply : "-WRONGTYPE Operation against a key\r\n";
    });
    Client client(redis.url());
    client.wait_up();
    CHECK(client.read(1) == nullptr);
    CHECK(client.look_up({1, 2}) == std::vector<std::int64_t>{0, 0});
    CHECK(client.store.is_up());
  }
}

TEST_CASE("no more waits to be written than is allowed, and dropping it answers it") {
  FakeRedis redis;
  Client client(redis.url(), {.server = {.patience = 60s}, .max_bytes_in_flight = 1'000});
  client.wait_up();
  redis.behave([](const FakeRedis::Words&, const std::string&) { return ""; });
  const auto begin_to_write = [&](std::uint64_t key, std::size_t size) {
    TierEvents write;
    write.push_back({.kind = TierEvent::Kind::kWritten, .key = {key, key}, .record = record_of(key, size)});
    client.store.write(std::move(write));
  };
  CHECK(client.store.can_take(1'000));
  CHECK_FALSE(client.store.can_take(1'001));
  begin_to_write(1, 600);
  CHECK_FALSE(client.store.can_take(500));
  CHECK(client.store.can_take(400));
  CHECK_FALSE(client.store.wait_idle(std::chrono::steady_clock::now()));
  client.store.drop_writes();
}

TEST_CASE("a store that is not there costs nothing, and is found once it is") {
  std::string url;
  {
    const FakeRedis gone;
    url = gone.url();
  }
  Client client(url);
  client.wait_for([&] { return client.store.stats().num_failures >= 2; });
  CHECK_FALSE(client.store.can_take(1));
  CHECK(client.look_up({1}).empty());
  CHECK(client.read(1) == nullptr);
}
