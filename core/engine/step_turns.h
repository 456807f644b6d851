// StepTurns: lets the engines of one process compute one after another, so that each step has all compute threads and
// two models never fight for the cores. Any thread. The engine that has computed for the shortest time is next; one
// that was idle does not save time up. Each engine's streams have a target, and the others leave it room: room_for().
// A step that was made longer, since no other engine had work, ends early once one asks for its turn. Alone, a turn
// costs an uncontended mutex: tens of nanoseconds a step.
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
  // One engine's place among those that take turns. A null `turns` stands for an engine that computes alone.
  class Member {
   public:
    // interrupt: set once another engine asks for its turn while this one has it; null: there is no such flag.
    explicit Member(StepTurns* turns, std::atomic<bool>* interrupt = nullptr) : turns_(turns), interrupt_(interrupt) {
      if (turns_ != nullptr) turns_->enter(*this);
    }
    ~Member() {
      if (turns_ != nullptr) turns_->leave(*this);
    }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // What this engine has to do: `target_seconds` between the tokens of its streams, 0 without streams or a target.
    void note_work(bool has_work, double target_seconds) {
      if (turns_ == nullptr) return;
      const std::lock_guard lock(turns_->mutex_);
      has_work_ = has_work;
      target_s_ = target_seconds;
    }
    // What the streams of the other engines leave to a step of this one.
    double room() const { return turns_ == nullptr ? kNoLimit : turns_->room_for(*this); }
    bool is_awaited() const { return turns_ != nullptr && turns_->others_work(*this); }

   private:
    friend class StepTurns;
    void interrupt() {
      if (interrupt_ != nullptr) interrupt_->store(true, std::memory_order_relaxed);
    }

    StepTurns* const turns_;
    std::atomic<bool>* const interrupt_;
    double used_s_ = 0.0;  // so long it has computed, or as long as one that had work while it had none
    double step_s_ = 0.0;  // its last turn
    double target_s_ = 0.0;
    std::uint64_t asked_ = 0;
    bool is_waiting_ = false;
    bool has_work_ = false;
  };

  // One turn, until it is destroyed.
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

    void set_seconds(double seconds) { seconds_ = seconds; }  // in place of the time that passed

   private:
    Member& member_;
    std::chrono::steady_clock::time_point began_;
    double seconds_ = -1.0;
  };

  // Those that have asked and not had a turn yet.
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
  // Of those that wait; null: none does.
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

  // Between two steps of an engine that streams every other one that has work takes one.
  double room_for(const Member& member) const {
    const std::lock_guard lock(mutex_);
    const auto num_working = std::ranges::count_if(members_, [](const Member* each) { return each->has_work_; });
    double room = kNoLimit;
    for (const Member* each : members_) {
      if (each == &member || !each->has_work_ || each->target_s_ <= 0.0) continue;
      const auto num_others = static_cast<double>(std::max<std::ptrdiff_t>(num_working - 1, 1));
      // An engine whose streams alone use its target up leaves the others as much as it takes itself.
      room = std::min(room, std::max(each->target_s_ - each->step_s_, each->step_s_) / num_others);
    }
    return room;
  }
  bool others_work(const Member& member) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(members_, [&](const Member* each) { return each != &member && each->has_work_; });
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member*> members_;
  std::uint64_t num_asked_ = 0;
  double now_s_ = 0.0;        // used by the engine that had the last turn, when it began
  Member* holder_ = nullptr;  // of the turn
};

}  // namespace quire
