// Running: the running sequences, most important first, with the places and blocks that they hold. A preempted one
// waits again with the arrival time of its request. Engine thread only. Invariants: a sequence is preempted only for
// one at least as important (lower level, then the older one), or to give its place away; a sequence in the plan being
// made, or that started in it, keeps its blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/kv_cache.h"
#include "core/sched/pass.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/step_cost.h"
#include "core/sched/waiting_queue.h"

namespace quire {

class Running {
 public:
  // All of them must outlive it.
  Running(const SchedulerOptions& options, KvCache& kv, WaitingQueue& waiting, const StepCost& cost);

  std::span<Sequence* const> sequences() const { return sequences_; }
  bool empty() const { return sequences_.empty(); }
  std::int64_t size() const { return static_cast<std::int64_t>(sequences_.size()); }
  std::int64_t num_places_left() const { return options_.max_num_seqs - size(); }
  std::int64_t num_choices() const { return num_choices_; }
  std::int64_t num_of_lists() const { return num_of_lists_; }
  std::int64_t num_started() const { return num_started_; }  // times that a sequence began to run
  std::uint64_t num_preemptions() const { return num_preemptions_; }
  std::uint64_t num_swaps() const { return num_swaps_; }  // preemptions whose blocks went to the tier below

  void enter(Sequence& sequence);
  void leave(Sequence& sequence);
  // Frees the blocks of a sequence that left.
  void release(Sequence& sequence, WhenEvicted when_evicted);
  // Gets blocks for `num_tokens` more tokens, and preempts less important sequences for them. False if that is not
  // enough.
  bool make_room(Pass& pass, Sequence& sequence, std::int64_t num_tokens);
  // The sequence gives up its place and blocks, and waits.
  void preempt(Pass& pass, Sequence& sequence);

 private:
  Sequence* choose_victim(const Sequence& sequence) const;
  bool swaps(const Sequence& victim, const StepLimits& limits) const;

  const SchedulerOptions& options_;
  KvCache& kv_;
  WaitingQueue& waiting_;
  const StepCost& cost_;
  std::vector<Sequence*> sequences_;
  std::int64_t num_choices_ = 0;
  std::int64_t num_of_lists_ = 0;
  std::int64_t num_started_ = 0;
  std::uint64_t num_preemptions_ = 0;
  std::uint64_t num_swaps_ = 0;
};

}  // namespace quire
