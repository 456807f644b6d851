// ThreadPool: every piece once, in jobs that follow each other closely or after the threads have gone to sleep.
#include "kernels/cpu/thread_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace quire::test {
namespace {

// Whether all compute threads of this process sleep in the kernel.
bool compute_threads_sleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    const std::size_t name_end = stat.rfind(')');
    if (stat.find("(cpu-") != std::string::npos && stat.compare(name_end, 3, ") S") != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("every piece of every job runs once, on a worker in range") {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads, {});
    REQUIRE(pool.size() == threads);
    for (std::int64_t job = 0; job < 2000; ++job) {
      const std::int64_t pieces = job % 9;
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(pieces));
      std::atomic<int> out_of_range{0};
      pool.run(pieces, [&](int worker, std::int64_t piece) {
        if (worker < 0 || worker >= threads) ++out_of_range;
        ++visits[static_cast<std::size_t>(piece)];
      });
      if (out_of_range != 0) FAIL("worker out of range");
      for (const std::atomic<int>& count : visits) {
        if (count != 1) FAIL("a piece ran " << count << " times in job " << job);
      }
    }
    SUCCEED();
  }
}

TEST_CASE("what a job wrote is visible to the caller and to the next job") {
  ThreadPool pool(3, {});
  std::vector<std::int64_t> values(64, 0);
  for (int job = 0; job < 500; ++job) {
    pool.run(64, [&](int, std::int64_t piece) { ++values[static_cast<std::size_t>(63 - piece)]; });
  }
  for (const std::int64_t value : values)
    CHECK(value == 500);
}

TEST_CASE("threads without work go to sleep and still wake") {
  ThreadPool pool(3, {});
  std::atomic<int> pieces{0};
  for (int round = 1; round <= 3; ++round) {
    pool.run(3, [&](int, std::int64_t) { ++pieces; });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    bool asleep = false;
    while (!asleep && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
      asleep = compute_threads_sleep();
    }
    CHECK(asleep);
    CHECK(pieces == 3 * round);
  }
}

}  // namespace quire::test
