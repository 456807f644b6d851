#include "kernels/cpu/machine/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "kernels/cpu/machine/processor.h"

namespace quire {
namespace {

// Long enough to bridge the gaps between the operations of a step, short enough that an idle process soon sleeps.
constexpr std::chrono::microseconds kSpin{60};

// Spins until ready() or until the time is up; returns whether it became ready.
template <class Ready>
bool spin(const Ready& ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause_spinning();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

void pin_to(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // A container may forbid pinning: the thread then runs unpinned, which is only slower.
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, const std::vector<int>& cpus) {
  if (cpus.size() >= static_cast<std::size_t>(num_threads)) cpus_.assign(cpus.begin(), cpus.begin() + num_threads);
  for (int worker = 1; worker < num_threads; ++worker) {
    workers_.emplace_back([this, worker] { work(worker); });
    pthread_setname_np(workers_.back().native_handle(), ("cpu-" + std::to_string(worker)).c_str());
    if (!cpus_.empty()) pin_to(workers_.back(), cpus_[static_cast<std::size_t>(worker)]);
  }
}

// A caller that moved to a worker's CPU would share it with a pinned thread until the system notices: that worker takes
// the free CPU instead.
void ThreadPool::keep_apart() {
  if (cpus_.empty()) return;
  const int here = sched_getcpu();
  if (here == cpus_[0]) return;
  const auto taken = std::find(cpus_.begin() + 1, cpus_.end(), here);
  if (taken == cpus_.end()) return;
  std::swap(cpus_[0], *taken);
  pin_to(workers_[static_cast<std::size_t>(taken - cpus_.begin() - 1)], *taken);
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
}

void ThreadPool::run_erased(std::int64_t num_pieces, Function function, const void* body) {
  if (num_pieces == 1 || workers_.empty()) {
    for (std::int64_t piece = 0; piece < num_pieces; ++piece)
      function(body, 0, piece);
    return;
  }
  if (num_pieces <= 0) return;
  keep_apart();
  function_ = function;
  body_ = body;
  done_.store(0, std::memory_order_relaxed);
  unclaimed_.store(num_pieces, std::memory_order_release);
  epoch_.fetch_add(1);
  if (num_parked_.load() > 0) epoch_.notify_all();
  drain(0);
  wait_until_done(num_pieces);
}

void ThreadPool::drain(int worker) {
  std::int64_t left = unclaimed_.load(std::memory_order_acquire);
  while (left > 0) {
    if (!unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    function_(body_, worker, left - 1);
    // Sequentially consistent with caller_parked_: either this sees the flag, or the caller sees the count.
    done_.fetch_add(1);
    if (caller_parked_.load()) done_.notify_one();
    left = unclaimed_.load(std::memory_order_acquire);
  }
}

void ThreadPool::wait_until_done(std::int64_t num_pieces) {
  if (spin([&] { return done_.load(std::memory_order_acquire) == num_pieces; })) return;
  caller_parked_.store(true);
  for (std::int64_t done = done_.load(); done != num_pieces; done = done_.load())
    done_.wait(done);
  caller_parked_.store(false);
}

void ThreadPool::wait_for_job(std::uint32_t seen) {
  if (spin([&] { return epoch_.load(std::memory_order_acquire) != seen; })) return;
  num_parked_.fetch_add(1);
  epoch_.wait(seen);
  num_parked_.fetch_sub(1);
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  while (true) {
    wait_for_job(seen);
    seen = epoch_.load();
    if (stopping_.load()) return;
    drain(worker);
  }
}

}  // namespace quire
