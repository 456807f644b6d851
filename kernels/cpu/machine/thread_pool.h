// ThreadPool: the compute threads cpu-1, cpu-2, ...; the caller of run() is worker 0.
// Used by one thread at a time (the engine thread, or the loading thread before it).
// Invariant: run() returns after every piece is done; a thread that wakes late never touches a job that is over.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace quire {

class ThreadPool {
 public:
  // `num_threads` counts the caller, which is never pinned. cpus: one per thread; workers are pinned to those that the
  // caller is not on; empty: unpinned.
  ThreadPool(int num_threads, const std::vector<int>& cpus);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(worker, piece) for every piece in [0, num_pieces), each once, on any worker in [0, size()).
  template <class Body>
  void run(std::int64_t num_pieces, const Body& body) {
    run_erased(num_pieces, &call<Body>, &body);
  }

 private:
  using Function = void (*)(const void* body, int worker, std::int64_t piece);
  template <class Body>
  static void call(const void* body, int worker, std::int64_t piece) {
    (*static_cast<const Body*>(body))(worker, piece);
  }

  void keep_apart();
  void run_erased(std::int64_t num_pieces, Function function, const void* body);
  void work(int worker);
  void drain(int worker);
  void wait_for_job(std::uint32_t seen);
  void wait_until_done(std::int64_t num_pieces);

  // The job. Written by the caller between jobs, read only by a worker that claimed a piece of it.
  Function function_ = nullptr;
  const void* body_ = nullptr;
  // Pieces not yet claimed. A claim is a successful decrement, so a stale worker finds zero and leaves.
  alignas(64) std::atomic<std::int64_t> unclaimed_{0};
  alignas(64) std::atomic<std::int64_t> done_{0};
  std::atomic<bool> caller_parked_{false};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // counts jobs; workers park on it
  std::atomic<int> num_parked_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
  std::vector<int> cpus_;  // worker i is pinned to cpus_[i]; cpus_[0] is left to the caller
};

}  // namespace quire
