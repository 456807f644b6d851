#include "kernels/parallel/rank_threads.h"

#include <pthread.h>

#include <string>

namespace quire {

RankThreads::RankThreads(int num_ranks) {
  for (int rank = 1; rank < num_ranks; ++rank)
    threads_.emplace_back([this, rank] { work(rank); });
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_)
    thread.join();
}

void RankThreads::run(const std::function<void(int)>& body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    num_working_ = static_cast<int>(threads_.size());
    ++num_runs_;
  }
  begun_.notify_all();
  body(0);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return num_working_ == 0; });
}

void RankThreads::work(int rank) {
  pthread_setname_np(pthread_self(), ("rank-" + std::to_string(rank)).c_str());
  std::unique_lock lock(mutex_);
  for (std::uint64_t run = 1;; ++run) {
    begun_.wait(lock, [&] { return is_stopping_ || num_runs_ >= run; });
    if (is_stopping_) return;
    const std::function<void(int)>& body = *body_;
    lock.unlock();
    body(rank);
    lock.lock();
    if (--num_working_ == 0) ended_.notify_one();
  }
}

}  // namespace quire
