// A fleet of replicas over one store, in simulated time: the sum of their admissions.
#include "server/ops/keys/shared_rate.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <random>
#include <vector>

using namespace quire;
using namespace std::chrono_literals;

namespace {

using Time = SharedRate::Time;
constexpr std::chrono::milliseconds kTick{1};

// The bucket as the store's script keeps it.
struct Bucket {
  std::optional<double> level;
  Time at{};

  double take(const SharedRate::Report& report, double capacity, Time now) {
    const double passed = std::chrono::duration<double>(now - at).count();
    level = std::min(capacity, level.value_or(report.level) + std::max(0.0, passed) * capacity / 60.0) - report.amount;
    at = now;
    return *level;
  }
};

struct Replica {
  SharedRate rate{};
  double per_second = 0.0;  // requests that arrive
  std::chrono::milliseconds one_way{1};
  std::chrono::hours clock{0};  // offset of its clock from the store's
  std::function<bool(std::chrono::milliseconds)> reaches_store = [](auto) { return true; };
  std::int64_t num_admitted = 0;

  struct Asked {
    SharedRate::Report report;
    std::chrono::milliseconds arrives{0};
    std::optional<double> answer{};
    std::chrono::milliseconds returns{0};
  };
  std::optional<Asked> asked{};
  bool was_reaching = true;
};

struct Fleet {
  std::vector<Replica> replicas;
  SharedRate::Limit limit{600, 3};
  double wanted = 1.0;
  Bucket bucket{};
  std::mt19937 random{1};
  std::chrono::milliseconds now{0};

  void run(std::chrono::milliseconds duration) {
    const auto until = now + duration;
    for (; now < until; now += kTick) {
      for (Replica& each : replicas)
        step(each);
    }
  }

  void step(Replica& replica) {
    const Time local = Time{} + 24h + now + replica.clock;
    const bool reaches = replica.reaches_store(now);
    if (!reaches && replica.was_reaching) {
      replica.rate.note_failure(limit, local);
      replica.asked.reset();
    }
    replica.was_reaching = reaches;
    if (replica.asked) take_answer(replica, local);
    if (std::uniform_real_distribution<>(0.0, 1.0)(random) < replica.per_second / 1000.0) admit(replica, local);
    if (!reaches || replica.asked || !replica.rate.wants_report()) return;
    replica.asked = Replica::Asked{replica.rate.begin_report(limit, local), now + replica.one_way};
  }

  void take_answer(Replica& replica, Time local) {
    Replica::Asked& asked = *replica.asked;
    if (!asked.answer && now >= asked.arrives) {
      asked.answer = bucket.take(asked.report, static_cast<double>(limit.per_minute), Time{} + now);
      asked.returns = now + replica.one_way;
    }
    if (!asked.answer || now < asked.returns) return;
    replica.rate.note_answer(*asked.answer, limit, local);
    replica.asked.reset();
  }

  void admit(Replica& replica, Time local) {
    if (!replica.rate.may_take(wanted, limit, local)) return replica.rate.note_refused();
    replica.rate.take(wanted, limit, local);
    ++replica.num_admitted;
  }

  double admitted() const {
    double sum = 0.0;
    for (const Replica& each : replicas)
      sum += static_cast<double>(each.num_admitted) * wanted;
    return sum;
  }
  // Requests that a single daemon would have admitted: a minute's worth, and the refill since.
  double allowed() const {
    return static_cast<double>(limit.per_minute) * (1.0 + std::chrono::duration<double>(now).count() / 60.0);
  }
};

Replica busy(double per_second, std::chrono::milliseconds one_way = 1ms) {
  Replica replica;
  replica.per_second = per_second;
  replica.one_way = one_way;
  return replica;
}

}  // namespace

TEST_CASE("replicas at three times a rate admit the rate, however long the store's answers take") {
  const std::chrono::milliseconds one_way = GENERATE(1ms, 20ms, 200ms, 500ms);
  CAPTURE(one_way.count());
  Fleet fleet{.replicas = {busy(30, one_way), busy(30, one_way), busy(30, 2 * one_way)}};
  fleet.run(2min);
  CHECK(fleet.admitted() <= 1.01 * fleet.allowed());
  CHECK(fleet.admitted() >= 0.97 * fleet.allowed());
  // No replica got much more than another.
  for (const Replica& each : fleet.replicas)
    CHECK(static_cast<double>(each.num_admitted) == Approx(fleet.allowed() / 3).epsilon(0.2));
}

TEST_CASE("one busy replica gets nearly the whole rate while the others are idle") {
  Fleet fleet{.replicas = {busy(90), busy(0), busy(0.1)}};
  fleet.run(2min);
  CHECK(fleet.admitted() <= 1.01 * fleet.allowed());
  CHECK(static_cast<double>(fleet.replicas[0].num_admitted) >= 0.97 * fleet.allowed());
}

TEST_CASE("the replicas' clocks do not matter") {
  Fleet fleet{.replicas = {busy(30), busy(30), busy(30)}};
  fleet.replicas[0].clock = 5h;
  fleet.replicas[1].clock = -7h;
  fleet.run(1min);
  CHECK(fleet.admitted() == Approx(fleet.allowed()).epsilon(0.03));
}

TEST_CASE("without a store the replicas' parts together are the rate") {
  Fleet fleet{.replicas = {busy(30), busy(30), busy(30)}};
  for (Replica& each : fleet.replicas)
    each.reaches_store = [](auto) { return false; };
  fleet.run(2min);
  CHECK(fleet.admitted() <= fleet.allowed() + 3);
  CHECK(fleet.admitted() >= 0.97 * fleet.allowed());
}

TEST_CASE("a store that comes and goes does not raise the rate") {
  const auto period = GENERATE(200ms, 3'000ms, 90'000ms);
  CAPTURE(period.count());
  Fleet fleet{.replicas = {busy(30, 5ms), busy(30, 5ms), busy(30, 5ms)}};
  for (Replica& each : fleet.replicas)
    each.reaches_store = [period](auto now) { return now / period % 2 == 1; };
  fleet.run(5min);
  CHECK(fleet.admitted() <= 1.01 * fleet.allowed() + 3);
  // Reports under way when the store went away may count twice.
  CHECK(fleet.admitted() >= 0.9 * fleet.allowed());
}

TEST_CASE("after a long time without a store an idle key is full, and a busy one owes no more than its part") {
  Fleet fleet{.replicas = {busy(0), busy(0), busy(0)}};
  for (Replica& each : fleet.replicas)
    each.reaches_store = [](auto now) { return now < 5s || now >= 10min; };
  SECTION("idle") {
    fleet.run(10min);
    for (Replica& each : fleet.replicas)
      each.per_second = 500;
    fleet.run(1s);
    CHECK(fleet.admitted() == Approx(610).epsilon(0.02));
  }
  SECTION("busy") {
    for (Replica& each : fleet.replicas)
      each.per_second = 30;
    fleet.run(10min);
    const double before = fleet.admitted();
    fleet.run(1min);
    CHECK(fleet.admitted() - before == Approx(600).epsilon(0.05));
  }
}

TEST_CASE("replicas that do not reach a store that others reach add their parts at most") {
  Fleet fleet{.replicas = {busy(30), busy(30), busy(30)}};
  fleet.replicas[2].reaches_store = [](auto) { return false; };
  fleet.run(2min);
  CHECK(fleet.admitted() <= fleet.allowed() * (1.0 + 1.0 / 3.0) + 3);
}

TEST_CASE("a store that lost what it had is given what the replicas know") {
  Fleet fleet{.replicas = {busy(30), busy(30), busy(30)}};
  fleet.run(1min);
  for (int loss = 0; loss < 20; ++loss) {
    fleet.bucket.level.reset();
    fleet.run(3s);
  }
  CHECK(fleet.admitted() == Approx(fleet.allowed()).epsilon(0.03));
}

TEST_CASE(
    "a burst at one replica of an idle fleet is served from its part, and from the rest once the store answered") {
  SharedRate rate;
  const SharedRate::Limit limit{60, 3};
  const Time now = Time{} + 1h;
  const auto burst = [&] {
    int num_admitted = 0;
    for (; rate.may_take(1.0, limit, now); ++num_admitted)
      rate.take(1.0, limit, now);
    rate.note_refused();
    return num_admitted;
  };
  CHECK(burst() == 20);
  double level = 60.0;
  int total = 20;
  for (int i = 0; i < 20; ++i) {
    level -= rate.begin_report(limit, now).amount;
    rate.note_answer(level, limit, now);
    total += burst();
  }
  CHECK(total == 60);
}

TEST_CASE("requests larger than a replica's part, and limits smaller than the fleet, are served") {
  SECTION("half of the limit at once, at a replica that knows nothing") {
    SharedRate rate;
    const SharedRate::Limit limit{10'000, 3};
    CHECK(rate.may_take(5'000, limit, Time{} + 1h));
    rate.take(5'000, limit, Time{} + 1h);
    CHECK_FALSE(rate.may_take(5'000, limit, Time{} + 1h));
    CHECK(rate.seconds_until(5'000, limit, Time{} + 1h) == Approx(60.0 * (5'000 - 0) / 3'333.3).epsilon(0.4));
  }
  SECTION("two a minute") {
    Fleet fleet{.replicas = {busy(1), busy(1), busy(1)}, .limit = {2, 3}};
    fleet.run(10min);
    CHECK(fleet.admitted() <= fleet.allowed() + 3);
    CHECK(fleet.admitted() >= 0.9 * fleet.allowed());
  }
  SECTION("prompts of a third of the limit") {
    Fleet fleet{.replicas = {busy(1), busy(1), busy(1)}, .limit = {9'000, 3}, .wanted = 3'000};
    fleet.run(10min);
    CHECK(fleet.admitted() <= fleet.allowed() + 3 * 3'000);
    CHECK(fleet.admitted() >= 0.9 * fleet.allowed());
  }
}

TEST_CASE("what was generated beyond the limit is a debt of the whole fleet") {
  Fleet fleet{.replicas = {busy(0), busy(30), busy(30)}};
  fleet.replicas[0].rate.take(1'200, fleet.limit, Time{} + 24h);
  fleet.run(1s);
  const double early = fleet.admitted();
  fleet.run(59s);
  CHECK(fleet.admitted() - early <= 10);  // 600 are owed, and refilled within the minute
  fleet.run(1min);
  CHECK(fleet.admitted() - early == Approx(600).epsilon(0.05));
}
