#include "core/engine/step_turns.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

using namespace quire;

TEST_CASE("engines take their turns one at a time, and none is left out") {
  StepTurns turns;
  std::atomic<int> num_inside{0};
  std::atomic<bool> overlapped{false};
  std::atomic<bool> over{false};
  std::vector<std::atomic<int>> taken(3);
  std::vector<std::thread> engines;
  for (std::size_t engine = 0; engine < taken.size(); ++engine) {
    engines.emplace_back([&, engine] {
      StepTurns::Member member(&turns);
      while (!over) {
        const StepTurns::Turn turn(member);
        if (++num_inside > 1) overlapped = true;
        --num_inside;
        ++taken[engine];
      }
    });
  }
  // Each gets on while the others never stop asking.
  for (std::atomic<int>& count : taken) {
    while (count < 100)
      std::this_thread::yield();
  }
  over = true;
  for (std::thread& engine : engines)
    engine.join();
  CHECK_FALSE(overlapped);
}

TEST_CASE("of those that wait the engine that has computed for the shortest time is next, then the first to ask") {
  StepTurns turns;
  StepTurns::Member first(&turns);
  std::vector<std::unique_ptr<StepTurns::Member>> members;
  for (int engine = 0; engine < 4; ++engine)
    members.push_back(std::make_unique<StepTurns::Member>(&turns));
  for (const auto& [engine, seconds] : {std::pair(0, 3.0), std::pair(1, 1.0), std::pair(2, 1.0), std::pair(3, 0.5)}) {
    StepTurns::Turn turn(*members[static_cast<std::size_t>(engine)]);
    turn.set_seconds(seconds);
  }
  std::vector<int> order;
  std::vector<std::thread> engines;
  {
    StepTurns::Turn turn(first);
    turn.set_seconds(0.0);
    for (int engine = 0; engine < 4; ++engine) {
      engines.emplace_back([&, engine] {
        StepTurns::Turn mine(*members[static_cast<std::size_t>(engine)]);
        order.push_back(engine);
        mine.set_seconds(0.0);
      });
      while (turns.num_waiting() <= engine)
        std::this_thread::yield();
    }
  }
  for (std::thread& engine : engines)
    engine.join();
  CHECK(order == std::vector<int>{3, 1, 2, 0});
}

TEST_CASE("an engine's step leaves the streams of the others their target") {
  StepTurns turns;
  StepTurns::Member streaming(&turns);
  StepTurns::Member computing(&turns);
  CHECK(std::isinf(computing.longest_step()));
  CHECK_FALSE(computing.is_awaited());
  {
    StepTurns::Turn turn(streaming);
    turn.set_seconds(0.03);
  }
  streaming.note_work(true, 0.15);
  computing.note_work(true, 0.0);
  CHECK(computing.longest_step() == Approx(0.12));
  CHECK(computing.is_awaited());
  CHECK(std::isinf(streaming.longest_step()));
  StepTurns::Member third(&turns);
  third.note_work(true, 0.0);
  CHECK(computing.longest_step() == Approx(0.06));
  streaming.note_work(true, 0.04);  // its own steps take most of its target
  CHECK(computing.longest_step() == Approx(0.015));
  streaming.note_work(false, 0.0);
  CHECK(std::isinf(computing.longest_step()));
}
