// RankThreads: the threads rank-1, rank-2, ... of a model that several devices compute together; the caller of run() is
// rank 0. One thread at a time. Invariant: run() returns after every rank has returned.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quire {

class RankThreads {
 public:
  explicit RankThreads(int num_ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls body(rank) for every rank at the same time; the body throws nothing.
  void run(const std::function<void(int)>& body);

 private:
  void work(int rank);

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  const std::function<void(int)>* body_ = nullptr;
  std::uint64_t num_runs_ = 0;
  int num_working_ = 0;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
