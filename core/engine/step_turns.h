// StepTurns: makes the engines of one process compute one after another, so that each step has all compute threads. Any
// thread. The next turn goes to the engine with the least computing time; idle time is not credited. An engine whose
// streams have a target gets time for it: longest_step() bounds the steps of the others. A step that is long because no
// other engine had work ends early when one asks for its turn. Alone, a turn costs an uncontended mutex: tens of
// nanoseconds a step.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

namespace quire {

class StepTurns {
 public:
  // An engine that takes turns. With a null `turns` it computes alone.
  class Member {
   public:
    // interrupt: set when another engine asks for its turn while this one has it; null: no flag.
    explicit Member(StepTurns* turns, std::atomic<bool>* interrupt = nullptr) : turns_(turns), interrupt_(interrupt) {
      if (turns_ != nullptr) turns_->enter(*this);
    }
    ~Member() {
      if (turns_ != nullptr) turns_->leave(*this);
    }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // Announces work: `target_seconds` between the tokens of its streams, 0 without streams or a target.
    void note_work(bool has_work, double target_seconds) {
      if (turns_ == nullptr) return;
      const std::lock_guard lock(turns_->mutex_);
      has_work_ = has_work;
      target_s_ = target_seconds;
    }
    // Longest step of this engine that the streams of the others allow.
    double longest_step() const { return turns_ == nullptr ? kNoLimit : turns_->longest_step_of(*this); }
    bool is_awaited() const { return turns_ != nullptr && turns_->others_work(*this); }

   private:
    friend class StepTurns;
    void interrupt() {
      if (interrupt_ != nullptr) interrupt_->store(true, std::memory_order_relaxed);
    }

    StepTurns* const turns_;
    std::atomic<bool>* const interrupt_;
    double used_s_ = 0.0;  // time computed; raised to that of working engines after a pause
    double step_s_ = 0.0;  // length of its last turn
    double target_s_ = 0.0;
    std::uint64_t asked_ = 0;
    bool is_waiting_ = false;
    bool has_work_ = false;
  };

  // The turn lasts as long as the object.
  class Turn {
   public:
    explicit Turn(Member& member) : member_(member) {
      if (member_.turns_ != nullptr) member_.turns_->take(member_);
      began_ = std::chrono::steady_clock::now();
    }
    ~Turn() {
      if (member_.turns_ == nullptr) return;
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began_;
      member_.turns_->give_back(member_, seconds_ >= 0.0 ? seconds_ : taken.count());
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    void set_seconds(double seconds) { seconds_ = seconds; }  // replaces the time that passed

   private:
    Member& member_;
    std::chrono::steady_clock::time_point began_;
    double seconds_ = -1.0;
  };

  // Number of engines that wait for their turn.
  int num_waiting() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::ranges::count_if(members_, [](const Member* each) { return each->is_waiting_; }));
  }

 private:
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  void enter(Member& member) {
    const std::lock_guard lock(mutex_);
    members_.push_back(&member);
  }
  void leave(Member& member) {
    const std::lock_guard lock(mutex_);
    std::erase(members_, &member);
  }

  void take(Member& member) {
    std::unique_lock lock(mutex_);
    member.used_s_ = std::max(member.used_s_, now_s_);
    member.asked_ = num_asked_++;
    member.is_waiting_ = true;
    if (holder_ != nullptr) holder_->interrupt();
    changed_.wait(lock, [&] { return holder_ == nullptr && next() == &member; });
    member.is_waiting_ = false;
    holder_ = &member;
    now_s_ = member.used_s_;
    if (next() != nullptr) member.interrupt();
  }
  void give_back(Member& member, double seconds) {
    {
      const std::lock_guard lock(mutex_);
      member.used_s_ += seconds;
      member.step_s_ = seconds;
      holder_ = nullptr;
    }
    changed_.notify_all();
  }
  // The waiting engine whose turn is next; null: none waits.
  const Member* next() const {
    const Member* first = nullptr;
    for (const Member* each : members_) {
      if (!each->is_waiting_) continue;
      if (first == nullptr || each->used_s_ < first->used_s_ ||
          (each->used_s_ == first->used_s_ && each->asked_ < first->asked_)) {
        first = each;
      }
    }
    return first;
  }

  // Between two steps of a streaming engine, every other engine with work takes one.
  double longest_step_of(const Member& member) const {
    const std::lock_guard lock(mutex_);
    const auto num_working = std::ranges::count_if(members_, [](const Member* each) { return each->has_work_; });
    double longest = kNoLimit;
    for (const Member* each : members_) {
      if (each == &member || !each->has_work_ || each->target_s_ <= 0.0) continue;
      const auto num_others = static_cast<double>(std::max<std::ptrdiff_t>(num_working - 1, 1));
      // If an engine's own step exceeds its target, the others get as much time as it takes.
      longest = std::min(longest, std::max(each->target_s_ - each->step_s_, each->step_s_) / num_others);
    }
    return longest;
  }
  bool others_work(const Member& member) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(members_, [&](const Member* each) { return each != &member && each->has_work_; });
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member*> members_;
  std::uint64_t num_asked_ = 0;
  double now_s_ = 0.0;        // used_s_ of the last turn's engine at its start
  Member* holder_ = nullptr;  // engine that has the turn
};

}  // namespace quire
