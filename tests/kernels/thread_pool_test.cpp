// ThreadPool: every piece once, in jobs that follow each other closely or after the threads have gone to sleep.
#include "kernels/cpu/machine/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/machine/topology.h"

namespace quire::test {
namespace {

// Returns whether all compute threads of this process sleep in the kernel.
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

TEST_CASE("a worker gives up its CPU to the caller that has come to run there") {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) {
    WARN("skipped: one core");
    return;
  }
  const auto only = [](int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return set;
  };
  ThreadPool pool(2, cores);
  for (const int cpu : {cores[1], cores[0], cores[1]}) {
    std::thread caller([&] {
      const cpu_set_t here = only(cpu);
      CHECK(sched_setaffinity(0, sizeof here, &here) == 0);
      cpu_set_t worker_set = here;
      std::atomic<int> started{0};
      pool.run(2, [&](int worker, std::int64_t) {
        if (worker == 1) sched_getaffinity(0, sizeof worker_set, &worker_set);
        for (++started; started < 2;)
          std::this_thread::yield();
      });
      const cpu_set_t other = only(cpu == cores[0] ? cores[1] : cores[0]);
      CHECK(CPU_EQUAL(&worker_set, &other));
    });
    caller.join();
  }
}

}  // namespace quire::test
