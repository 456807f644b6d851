#include "server/fleet/quota_sharer.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/result.h"
#include "tests/server/fleet/fake_redis.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

ApiKey key_of(const std::string& name, std::int64_t requests_per_minute, std::int64_t tokens_per_minute = 0) {
  ApiKey key;
  key.name = name;
  key.quota = {.requests_per_minute = requests_per_minute, .tokens_per_minute = tokens_per_minute};
  return key;
}

// Buckets without refill; the script reports `num_daemons`. Only the server's thread uses `levels`.
FakeRedis::Behaviour buckets(std::map<std::string, double>& levels, int num_daemons = 2) {
  return [&levels, num_daemons](const FakeRedis::Words& words, const std::string& reply) {
    if (words[0] != "EVAL") return reply;
    double level = 0.0;
    if (words[2] == "2") {
      const auto at = levels.try_emplace(words[4], std::stod(words[8])).first;
      level = at->second -= std::stod(words[7]);
    }
    const std::string text = fmt::format("{:.6f} {}", level, num_daemons);
    return fmt::format("${}\r\n{}\r\n", text.size(), text);
  };
}

// Sum of the reports for a bucket so far.
double reported(const FakeRedis& redis, const std::string& bucket) {
  double sum = 0.0;
  for (const FakeRedis::Words& words : redis.commands()) {
    if (words[0] == "EVAL" && words[4] == bucket) sum += std::stod(words[7]);
  }
  return sum;
}

struct Daemon {
  explicit Daemon(const std::string& url, std::int64_t replicas = 2)
      : sharer({.server = {.url = url, .first_pause = 20ms, .longest_pause = 40ms},
                .prefix = "test",
                .replicas = replicas,
                .heartbeat = 20ms},
               {{&table, ""}, {&batches, "batch:"}}, counts) {}

  template <class Condition>
  static void wait_for(Condition condition) {
    const auto late = Clock::now() + 60s;
    while (!condition()) {
      REQUIRE(Clock::now() < late);
      std::this_thread::sleep_for(1ms);  // polling as fast as it can keeps the table's lock from the daemon
    }
  }
  void wait_up(std::int64_t num_daemons = 2) {
    wait_for([&] { return counts.is_up && counts.num_replicas == num_daemons; });
  }
  // Sends requests until one is refused; `now` stands still, so that nothing is refilled here.
  int burst(const ApiKey& key) {
    int num_admitted = 0;
    while (table.admit(key, now))
      ++num_admitted;
    return num_admitted;
  }
  double remaining(const ApiKey& key) { return std::stod(table.headers(key, now).at(1).second); }

  const Clock::time_point now = Clock::now();
  QuotaTable table;
  QuotaTable batches;
  SharedQuotaCounts counts;
  QuotaSharer sharer;
};

}  // namespace

TEST_CASE("two daemons together admit what a key may, and batches count apart") {
  std::map<std::string, double> levels;
  FakeRedis redis(false, buckets(levels));
  Daemon first(redis.url());
  Daemon second(redis.url());
  first.wait_up();
  second.wait_up();
  const ApiKey alice = key_of("alice", 100);
  int total = first.burst(alice) + second.burst(alice);
  Daemon::wait_for([&] {
    total += first.burst(alice) + second.burst(alice);
    return first.remaining(alice) == 0.0 && second.remaining(alice) == 0.0;
  });
  // A burst at one of them exceeds the limit by at most the other's part, and everything is reported except for the
  // refill before the first answer.
  CHECK((total >= 100 && total <= 150));
  Daemon::wait_for([&] { return reported(redis, "{test:quotas}:alice:requests") > total - 20; });
  CHECK(first.burst(key_of("bob", 10)) >= 5);
  CHECK(first.batches.admit(alice, first.now));
  Daemon::wait_for([&] { return reported(redis, "{test:quotas}:batch:alice:requests") > 0.0; });
}

TEST_CASE("one busy daemon is given all that the store has") {
  std::map<std::string, double> levels;
  FakeRedis redis(false, buckets(levels));
  Daemon daemon(redis.url());
  daemon.wait_up();
  const ApiKey alice = key_of("alice", 100);
  int total = 0;
  Daemon::wait_for([&] { return (total += daemon.burst(alice)) >= 100; });
  Daemon::wait_for([&] { return daemon.remaining(alice) == 0.0; });
  CHECK(daemon.burst(alice) == 0);
  CHECK(total == 100);
  const auto refused = daemon.table.admit(alice, daemon.now);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().retry_after == std::chrono::seconds(1));
}

TEST_CASE("tokens that were generated beyond the limit are owed by all daemons") {
  std::map<std::string, double> levels;
  FakeRedis redis(false, buckets(levels));
  Daemon first(redis.url());
  Daemon second(redis.url());
  first.wait_up();
  second.wait_up();
  const ApiKey alice = key_of("alice", 0, 1'000);
  auto lease = first.table.admit(alice, first.now);
  REQUIRE(lease);
  CHECK(lease->take_prompt(800, 1, first.now));
  lease->take_generated(700, first.now);
  Daemon::wait_for([&] { return reported(redis, "{test:quotas}:alice:tokens") > 1'300.0; });
  auto other = second.table.admit(alice, second.now);
  REQUIRE(other);  // it has no answer yet, and takes its half
  CHECK(other->take_prompt(400, 1, second.now));
  Daemon::wait_for([&] { return second.remaining(alice) == 0.0; });
  const auto refused = second.table.admit(alice, second.now);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().retry_after > std::chrono::seconds(30));  // 900 are owed
}

TEST_CASE("without a store each daemon admits its part, and what it took is reported once there is one") {
  std::map<std::string, double> levels;
  FakeRedis redis(false, [](const FakeRedis::Words&, const std::string&) { return FakeRedis::kClose; });
  Daemon daemon(redis.url(), 4);
  const ApiKey alice = key_of("alice", 100);
  CHECK(daemon.burst(alice) == 25);
  Daemon::wait_for([&] { return daemon.counts.num_failures >= 2; });
  CHECK(daemon.burst(alice) == 0);
  redis.behave(buckets(levels));
  daemon.wait_up();
  Daemon::wait_for([&] { return daemon.remaining(alice) > 0.0; });
  CHECK(daemon.remaining(alice) == Approx(75).margin(1));
}

TEST_CASE("a store that answers with anything but levels is given up: no request is admitted for it, or waits") {
  const std::string garbage =
      GENERATE(as<std::string>{}, "$3\r\nnan\r\n", "$5\r\nnan 2\r\n", "$5\r\ninf 2\r\n", "$3\r\n1 0\r\n",
               "$4\r\n1 -2\r\n", "$5\r\n1 2 3\r\n", "$2\r\n1 \r\n", "$0\r\n\r\n", "$-1\r\n", ":5\r\n", "+OK\r\n",
               "$20\r\n1 999999999999999999\r\n", "$7\r\n1e999 2\r\n", "-ERR unknown command 'EVAL'\r\n",
               "-OOM command not allowed\r\n", "-READONLY You can't write\r\n", "*1\r\n$1\r\n1\r\n", "HTTP/1.1 200\r\n",
               FakeRedis::kClose);
  CAPTURE(garbage);
  std::map<std::string, double> levels;
  FakeRedis redis(false, buckets(levels, 4));
  Daemon daemon(redis.url());
  daemon.wait_up(4);
  redis.behave([garbage](const FakeRedis::Words& words, const std::string& reply) {
    return words[0] == "EVAL" ? garbage : reply;
  });
  Daemon::wait_for([&] { return daemon.counts.num_failures >= 1; });
  const ApiKey alice = key_of("alice", 10);
  CHECK(daemon.burst(alice) == 2);
  Daemon::wait_for([&] { return daemon.counts.num_failures >= 3; });
  CHECK(daemon.burst(alice) == 0);
  redis.behave(buckets(levels, 4));
  // A report under way when the connection was given up may count as well as the next one: 2.5 each.
  Daemon::wait_for([&] { return daemon.counts.is_up && daemon.remaining(alice) > 2.0; });
  CHECK(daemon.remaining(alice) <= 8);
}

TEST_CASE("a store that always answers that there is more gives a daemon no more than a daemon alone would admit") {
  FakeRedis redis(false, [](const FakeRedis::Words& words, const std::string& reply) {
    return words[0] == "EVAL" ? "$9\r\n1000000 1\r\n" : reply;
  });
  Daemon daemon(redis.url());
  Daemon::wait_for([&] { return daemon.counts.is_up.load(); });
  const ApiKey alice = key_of("alice", 100);
  int total = 0;
  Daemon::wait_for([&] { return (total += daemon.burst(alice)) >= 100; });
  for (int beat = 0; beat < 5; ++beat) {
    const std::size_t before = redis.commands().size();
    Daemon::wait_for([&] { return redis.commands().size() > before; });
    total += daemon.burst(alice);
  }
  CHECK(total == 100);
}

TEST_CASE("a store that stops answering holds up nothing, and the daemon counts on") {
  std::map<std::string, double> levels;
  FakeRedis redis(false, buckets(levels));
  Daemon daemon(redis.url());
  daemon.wait_up();
  redis.behave([](const FakeRedis::Words&, const std::string&) { return ""; });
  const ApiKey alice = key_of("alice", 10);
  CHECK(daemon.burst(alice) >= 5);
  Daemon::wait_for([&] { return daemon.counts.num_failures >= 2; });
  CHECK_FALSE(daemon.counts.is_up);
  CHECK(daemon.burst(alice) == 0);
}

TEST_CASE("what a store is asked names the daemon, the bucket and the limit, and the tables outlive the sharer") {
  std::map<std::string, double> levels;
  FakeRedis redis(true, buckets(levels));
  QuotaTable table;
  SharedQuotaCounts counts;
  const ApiKey alice = key_of("alice", 6);
  {
    QuotaSharer sharer({.server = {.url = redis.url("q:secret@", "/3"), .ca = certificate().certificate}},
                       {{&table, ""}}, counts);
    Daemon::wait_for([&] { return counts.num_replicas == 2; });
    CHECK(table.admit(alice, Clock::now()));
    Daemon::wait_for([&] { return reported(redis, "{quire:quotas}:alice:requests") > 0.0; });
    for (const FakeRedis::Words& asked : redis.commands()) {
      if (asked[0] != "EVAL" || asked[2] != "2") continue;
      CHECK(asked[3] == "{quire:quotas}:replicas");
      CHECK(asked[5].size() == 32);
      CHECK((asked[6] == "6" && asked[8] == "6.000000"));
    }
  }
  CHECK(table.admit(alice, Clock::now()));
  CHECK_THROWS_AS(check_quota_options({.server = {.url = "redis://a/x"}}), StartupError);
  CHECK_THROWS_AS(check_quota_options({.server = {.url = "rediss://a", .ca = "/nowhere"}}), StartupError);
}
