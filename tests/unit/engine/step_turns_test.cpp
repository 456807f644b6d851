#include "core/engine/step_turns.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

using namespace quire;

TEST_CASE("engines take their turns one at a time, and none twice while another waits") {
  StepTurns turns;
  std::atomic<int> num_inside{0};
  std::atomic<bool> overlapped{false};
  std::atomic<bool> over{false};
  std::vector<std::atomic<int>> taken(3);
  std::vector<std::thread> engines;
  for (std::size_t engine = 0; engine < taken.size(); ++engine) {
    engines.emplace_back([&, engine] {
      while (!over) {
        const StepTurns::Turn turn(&turns);
        if (++num_inside > 1) overlapped = true;
        --num_inside;
        ++taken[engine];
      }
    });
  }
  // Nobody is left out: each gets on while the others never stop asking.
  for (std::atomic<int>& count : taken) {
    while (count < 100)
      std::this_thread::yield();
  }
  over = true;
  for (std::thread& engine : engines)
    engine.join();
  CHECK_FALSE(overlapped);
}

TEST_CASE("turns are taken in the order in which they were asked for") {
  StepTurns turns;
  std::vector<int> order;
  std::vector<std::thread> engines;
  {
    const StepTurns::Turn first(&turns);
    for (int engine = 0; engine < 3; ++engine) {
      engines.emplace_back([&, engine] {
        const StepTurns::Turn turn(&turns);
        order.push_back(engine);
      });
      while (turns.num_waiting() <= engine)
        std::this_thread::yield();
    }
  }
  for (std::thread& engine : engines)
    engine.join();
  CHECK(order == std::vector<int>{0, 1, 2});
}
