// StepTurns: lets the engines of one process compute one after another, in the order in which they asked, so that each
// step has all compute threads and two models never fight for the cores. Any thread. Invariant: whoever asks again
// stands behind everybody who waits. Alone, a turn costs an uncontended mutex: tens of nanoseconds a step.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace quire {

class StepTurns {
 public:
  // One thread's turn, until it is destroyed. A null `turns` stands for an engine that computes alone.
  class Turn {
   public:
    explicit Turn(StepTurns* turns) : turns_(turns) {
      if (turns_ != nullptr) turns_->take();
    }
    ~Turn() {
      if (turns_ != nullptr) turns_->give_back();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    StepTurns* turns_;
  };

  // Who has asked and not had a turn yet.
  int num_waiting() const {
    const std::lock_guard lock(mutex_);
    return std::max(0, static_cast<int>(num_asked_ - num_over_) - 1);
  }

 private:
  void take() {
    std::unique_lock lock(mutex_);
    const std::uint64_t mine = num_asked_++;
    changed_.wait(lock, [&] { return num_over_ == mine; });
  }
  void give_back() {
    {
      const std::lock_guard lock(mutex_);
      ++num_over_;
    }
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t num_asked_ = 0;
  std::uint64_t num_over_ = 0;
};

}  // namespace quire
