// Decisions of the watchdog from the engine's published state and a time that the test gives.
#include <catch2/catch.hpp>

#include "server/ops/systemd.h"

using namespace quire;

namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

const std::chrono::steady_clock::time_point kBegan{hours(1)};

EngineStats in_step(double predicted_s) {
  EngineStats stats;
  stats.num_running = 1;
  stats.num_plans = 1;
  stats.predicted_step_s = predicted_s;
  return stats;
}

}  // namespace

TEST_CASE("the watchdog is fed while the engine steps or has nothing to do", "[watchdog]") {
  Watchdog watchdog;
  EngineStats stats;
  CHECK(watchdog.is_alive(stats, true, kBegan));
  CHECK(watchdog.is_alive(stats, true, kBegan + hours(5)));
  stats = in_step(0.1);
  CHECK(watchdog.is_alive(stats, true, kBegan + hours(6)));
  CHECK_FALSE(watchdog.is_alive(stats, true, kBegan + hours(6) + seconds(2)));
  ++stats.num_plans;
  CHECK(watchdog.is_alive(stats, true, kBegan + hours(6) + seconds(4)));
  CHECK_FALSE(watchdog.is_alive(stats, true, kBegan + hours(6) + seconds(6)));
  stats.num_running = 0;
  stats.num_waiting = 1;  // it could start, and does not
  CHECK_FALSE(watchdog.is_alive(stats, true, kBegan + hours(6) + seconds(8)));
  stats.num_waiting = 0;
  CHECK(watchdog.is_alive(stats, true, kBegan + hours(6) + seconds(10)));
}

TEST_CASE("an engine whose device failed is not alive, whatever it does", "[watchdog]") {
  Watchdog watchdog;
  CHECK_FALSE(watchdog.is_alive({}, false, kBegan));
  CHECK_FALSE(watchdog.is_alive(in_step(1.0), false, kBegan + seconds(1)));
}

TEST_CASE("the watchdog waits for a step that was predicted to take long", "[watchdog]") {
  Watchdog watchdog;
  const EngineStats stats = in_step(40.0);
  CHECK(watchdog.is_alive(stats, true, kBegan));
  CHECK(watchdog.is_alive(stats, true, kBegan + seconds(60)));
  CHECK(watchdog.is_alive(stats, true, kBegan + seconds(390)));
  CHECK_FALSE(watchdog.is_alive(stats, true, kBegan + seconds(410)));
}

TEST_CASE("after hours without work a long step has all its time", "[watchdog]") {
  Watchdog watchdog;
  EngineStats idle = in_step(0.1);  // the last step's
  idle.num_running = 0;
  for (int hour = 0; hour < 8; ++hour)
    CHECK(watchdog.is_alive(idle, true, kBegan + hours(hour)));
  const EngineStats stats = in_step(40.0);
  CHECK(watchdog.is_alive(stats, true, kBegan + hours(7) + seconds(30)));
  CHECK(watchdog.is_alive(stats, true, kBegan + hours(7) + seconds(390)));
  CHECK_FALSE(watchdog.is_alive(stats, true, kBegan + hours(7) + seconds(410)));
}

TEST_CASE("a step before any price is known has ten minutes", "[watchdog]") {
  Watchdog watchdog;
  EngineStats stats = in_step(0.0);
  stats.num_plans = 0;
  CHECK(watchdog.is_alive(stats, true, kBegan));  // the first look meets it in the middle of its first step
  CHECK(watchdog.is_alive(stats, true, kBegan + minutes(9)));
  CHECK_FALSE(watchdog.is_alive(stats, true, kBegan + minutes(11)));
}

TEST_CASE("a step has the time in which a slow disk reads the weights again", "[watchdog]") {
  Watchdog watchdog(40'000'000'000);  // 800 s at 50 MB/s
  const EngineStats stats = in_step(2.0);
  CHECK(watchdog.is_alive(stats, true, kBegan));
  CHECK(watchdog.is_alive(stats, true, kBegan + seconds(815)));
  CHECK_FALSE(watchdog.is_alive(stats, true, kBegan + seconds(825)));
}

TEST_CASE("an engine that waits for another one's step, or for the disk, is alive", "[watchdog]") {
  Watchdog watchdog;
  EngineStats stats = in_step(0.1);
  stats.awaits_others = 1;
  CHECK(watchdog.is_alive(stats, true, kBegan));
  CHECK(watchdog.is_alive(stats, true, kBegan + minutes(5)));
  stats.awaits_others = 0;  // its own step's time starts here
  CHECK(watchdog.is_alive(stats, true, kBegan + minutes(5) + std::chrono::milliseconds(900)));
  CHECK_FALSE(watchdog.is_alive(stats, true, kBegan + minutes(5) + seconds(2)));
}

TEST_CASE("moving blocks is getting on, although no step is computed", "[watchdog]") {
  Watchdog watchdog;
  EngineStats stats = in_step(0.1);
  for (int i = 0; i < 100; ++i) {
    ++stats.num_plans;
    CHECK(watchdog.is_alive(stats, true, kBegan + seconds(60 * i)));
  }
  CHECK(stats.num_steps == 0);
}
