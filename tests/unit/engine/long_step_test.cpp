// A step that was made longer than max_step_time, since a prompt had the machine to itself: it ends at the next border
// of its slices when a request arrives or another engine asks for its turn, and what was computed stays. And what an
// engine publishes of itself while it computes or waits.
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "core/engine/step_turns.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr double kStepBound = 0.25;   // max_step_time: auto
constexpr double kCheapStart = 0.01;  // a step's fixed price with which slices keep that bound
constexpr double kDearStart = 0.02;   // and with which they are longer, and cut

StepPrice price_of(double fixed) {
  return {.fixed = fixed, .stream = 0.002, .prompt_token = 0.001};
}

HarnessOptions priced(double fixed, std::shared_ptr<StepTurns> turns = nullptr) {
  HarnessOptions options{.num_blocks = 5000};
  options.deferred_seed.reset();  // only one step in flight can end early
  options.price = price_of(fixed);
  options.engine.scheduler.max_step_time_ms = SchedulerOptions::kAutoStepTime;
  options.engine.turns = std::move(turns);
  return options;
}

// Until then a step computes few tokens.
void learn_prices(Harness& harness) {
  harness.submit(request_of(made_tokens(3000, 77), 4));
  harness.run();
}

// Does something once, before slice number `slice` of a long step is computed, and counts that step's slices and rows.
class LongStep {
 public:
  LongStep(Harness& harness, int slice, std::function<void()> work)
      : harness_(harness), slice_(slice), work_(std::move(work)) {
    harness.model.before_slice = [this] {
      if (++num_slices == slice_ && work_) std::exchange(work_, nullptr)();
    };
  }
  ~LongStep() { harness_.model.before_slice = nullptr; }

  // Steps until the work was done.
  void run() {
    while (work_) {
      num_slices = 0;
      const std::int64_t rows_before = harness_.model.num_rows;
      REQUIRE(harness_.step());
      num_rows = harness_.model.num_rows - rows_before;
    }
  }

  int num_slices = 0;
  std::int64_t num_rows = 0;

 private:
  Harness& harness_;
  const int slice_;
  std::function<void()> work_;
};

}  // namespace

TEST_CASE(
    "an arrival ends a long step after the slice that it came in or within it, and what was computed before stays",
    "[engine]") {
  const double fixed = GENERATE(kCheapStart, kDearStart);
  Harness harness(priced(fixed));
  learn_prices(harness);
  const std::int64_t rows_before = harness.model.num_rows;
  const auto prompt = harness.submit(request_of(made_tokens(12'000, 1), 4));
  std::shared_ptr<KeepingSink> small;
  const int slice = GENERATE(2, 4);
  LongStep step(harness, slice, [&] { small = harness.submit(request_of(made_tokens(20, 2), 2)); });
  step.run();
  CHECK(step.num_slices == slice);
  // A slice that is computed to its end fits the bound of a step: so long the arrival waits for what was under way.
  const int num_kept = fixed == kDearStart ? slice - 1 : slice;
  const double slice_s = fixed + 0.001 * static_cast<double>(step.num_rows) / num_kept;
  CHECK((slice_s > 1.05 * kStepBound) == (fixed == kDearStart));
  CHECK(step.num_rows > 200 * num_kept);
  int num_steps = 0;
  for (; small->choices[0].tokens.empty(); ++num_steps)
    REQUIRE(harness.step());
  CHECK(num_steps <= 3);
  harness.run();
  CHECK(prompt->choices[0].tokens.size() == 4);
  CHECK(harness.model.num_rows - rows_before == 12'000 + 3 + 20 + 1);  // no row twice
}

TEST_CASE("an engine that asks for its turn ends another one's long step", "[engine]") {
  const auto turns = std::make_shared<StepTurns>();
  Harness computing(priced(kDearStart, turns));
  Harness asking(priced(kDearStart, turns));
  learn_prices(computing);
  const std::int64_t rows_learned = computing.model.num_rows;
  const auto prompt = computing.submit(request_of(made_tokens(12'000, 1), 4));
  const auto small = asking.submit(request_of(made_tokens(10, 2), 2));
  std::thread asks;
  EngineStats waiting;
  LongStep step(computing, 3, [&] {
    asks = std::thread([&] { asking.step(); });
    while (turns->num_waiting() == 0)
      std::this_thread::yield();
    waiting = asking.engine.stats();
  });
  step.run();
  asks.join();
  CHECK(step.num_slices == 3);
  CHECK(waiting.awaits_others == 1);
  CHECK(small->choices[0].tokens.size() == 1);
  // As long as the other has work, steps are short.
  const std::int64_t rows_before = computing.model.num_rows;
  REQUIRE(computing.step());
  CHECK(0.001 * static_cast<double>(computing.model.num_rows - rows_before) <= 1.05 * kStepBound);
  asking.run();
  computing.run();
  CHECK(prompt->choices[0].tokens.size() == 4);
  CHECK(computing.model.num_rows - rows_learned == 12'000 + 3);
}

TEST_CASE("the wait for a turn is booked as that, and the engine says that it waits for others", "[engine]") {
  HarnessOptions options;
  options.engine.turns = std::make_shared<StepTurns>();
  Harness harness(options);
  const auto sink = harness.submit(request_of(made_tokens(6, 1), 3));
  StepTurns::Member other(options.engine.turns.get());
  std::thread engine;
  Clock::duration held{};
  {
    const StepTurns::Turn turn(other);
    engine = std::thread([&] { harness.step(); });
    while (options.engine.turns->num_waiting() == 0)
      std::this_thread::yield();
    const Clock::time_point began = Clock::now();
    const EngineStats stats = harness.engine.stats();
    CHECK(stats.awaits_others == 1);
    CHECK(stats.num_running == 1);
    CHECK(stats.num_steps == 0);
    while (held == Clock::duration::zero())
      held = Clock::now() - began;
  }
  engine.join();
  harness.run();
  CHECK(sink->finished());
  const EngineStats stats = harness.engine.stats();
  CHECK(stats.awaits_others == 0);
  CHECK(stats.phase_ns[static_cast<std::size_t>(StepPhase::kTurn)] >= static_cast<std::uint64_t>(held.count()));
}

TEST_CASE("while a step is computed the engine says what it was predicted to take", "[engine]") {
  Harness harness(priced(kDearStart));
  harness.submit(request_of(made_tokens(3000, 1), 4));
  std::vector<EngineStats> seen;
  harness.model.before_slice = [&] { seen.push_back(harness.engine.stats()); };
  REQUIRE(harness.step());
  CHECK(seen.at(0).predicted_step_s == 0.0);  // the first: no price is known
  CHECK(seen.at(0).num_running == 1);
  harness.run();
  CHECK(harness.engine.stats().num_running == 0);
  // Idle until now, and then at once a long step.
  seen.clear();
  const std::int64_t rows_before = harness.model.num_rows;
  harness.submit(request_of(made_tokens(3000, 2), 4));
  REQUIRE(harness.step());
  const std::int64_t num_rows = harness.model.num_rows - rows_before;
  CHECK(num_rows > 1000);
  REQUIRE(seen.size() > 2);
  for (const EngineStats& each : seen) {
    CHECK(each.num_running == 1);
    CHECK(each.awaits_others == 0);
    CHECK(each.predicted_step_s == Approx(kDearStart + 0.001 * static_cast<double>(num_rows)).epsilon(0.05));
  }
  harness.model.before_slice = nullptr;
}
