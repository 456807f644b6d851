// PieceRanges: each piece once, in order within a range, for any order of claims.
#include "kernels/cpu/piece_ranges.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace quire::test {

TEST_CASE("a range alone claims its own pieces in order, then the others' from their ends") {
  PieceRanges ranges(3);
  ranges.divide(9);
  std::vector<std::int64_t> claimed;
  for (std::int64_t piece = ranges.claim(1); piece >= 0; piece = ranges.claim(1))
    claimed.push_back(piece);
  CHECK(claimed == std::vector<std::int64_t>{3, 4, 5, 8, 7, 6, 2, 1, 0});
  CHECK(ranges.claim(0) == -1);
}

TEST_CASE("ranges give each piece once to threads that claim together, in every round") {
  constexpr int kThreads = 4;
  PieceRanges ranges(kThreads);
  for (const std::int64_t pieces : {0, 1, 3, 4, 1000}) {
    ranges.divide(pieces);
    std::vector<std::atomic<int>> claims(static_cast<std::size_t>(pieces));
    std::vector<std::thread> threads;
    for (int own = 0; own < kThreads; ++own) {
      threads.emplace_back([&, own] {
        for (std::int64_t piece = ranges.claim(own); piece >= 0; piece = ranges.claim(own))
          ++claims[static_cast<std::size_t>(piece)];
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    for (const std::atomic<int>& count : claims)
      CHECK(count == 1);
  }
}

}  // namespace quire::test
