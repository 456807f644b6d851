// Rendezvous of several ranks' threads, and the threads themselves.
#include <atomic>
#include <catch2/catch.hpp>

#include "kernels/parallel/rank_threads.h"
#include "kernels/parallel/rendezvous.h"

namespace quire::test {

TEST_CASE("no thread leaves before all have come, round after round", "[parallel]") {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  Rendezvous meeting(kThreads);
  RankThreads threads(kThreads);
  std::atomic<int> num_arrived{0};
  std::atomic<int> num_early{0};
  threads.run([&](int) {
    for (int round = 1; round <= kRounds; ++round) {
      ++num_arrived;
      meeting.meet();
      if (num_arrived < round * kThreads) ++num_early;
      meeting.meet();
    }
  });
  CHECK(num_arrived == kThreads * kRounds);
  CHECK(num_early == 0);
}

TEST_CASE("a thread that gives up lets go those that wait and those that come, until the next start", "[parallel]") {
  Rendezvous meeting(3);
  RankThreads threads(3);
  for (int turn = 0; turn < 20; ++turn) {
    std::atomic<int> num_given_up{0};
    threads.run([&](int rank) {
      if (rank == turn % 3) return meeting.give_up();
      try {
        meeting.meet();
      } catch (const RendezvousGivenUp&) {
        ++num_given_up;
      }
    });
    CHECK(num_given_up == 2);
    meeting.restart();
    threads.run([&](int) { meeting.meet(); });
  }
}

}  // namespace quire::test
