// Statistics of an engine that waits for another one's turn.
#include <catch2/catch.hpp>
#include <thread>

#include "core/engine/step_turns.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

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
