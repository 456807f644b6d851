// Prompts: how the prompts in progress share the rows and time that streams leave: by class under kPriority, lists
// last, by key under kFair, then the shortest remainder first. A quarter of the tokens goes to the oldest prompt.
// Background prompts come last. While a request waits or streams, a step is planned for at most
// scheduler.max_step_time. A prompt that runs alone may have a longer step, which ends after a slice when a request
// arrives or another engine needs the compute threads. Engine thread only.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "core/kv/kv_cache.h"
#include "core/sched/pass.h"
#include "core/sched/policy/lists.h"
#include "core/sched/running.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/step_cost.h"
#include "core/sched/time_bounds.h"
#include "core/sched/waiting_queue.h"

namespace quire {

class Prompts {
 public:
  Prompts(const SchedulerOptions& options, KvCache& kv, const WaitingQueue& waiting, const StepCost& cost,
          const TimeBounds& bounds, const Lists& lists, Running& running)
      : options_(options), kv_(kv), waiting_(waiting), cost_(cost), bounds_(bounds), lists_(lists), running_(running) {}

  // The prompts in progress that can be computed further, in their order.
  void find(Pass& pass);
  // Called once the streams are placed: sets the time and rows that they leave, and whether an arrival may end the
  // step.
  void set_budget(Pass& pass) const;
  // Shares the budget among the prompts, and places what they get.
  void fit(Pass& pass);
  // Notes a step's time, and whether an arrival cut one of its slices.
  void observe(double seconds, bool cut_slice) { uncut_seconds_ = cut_slice ? 0.0 : uncut_seconds_ + seconds; }

 private:
  void set_slices(Pass& pass) const;
  void share(Pass& pass);
  void give_to_oldest(Pass& pass, std::span<PromptShare> prompts);
  void give(Pass& pass, PromptShare& share, std::int64_t num_tokens, double seconds) const;
  void give_whole(Pass& pass, PromptShare& share, std::int64_t num_tokens, double seconds) const;
  void give_background(Pass& pass, PromptShare& share) const;
  void add_to(Pass& pass, PromptShare& share, std::int64_t num_tokens) const;
  std::int64_t wanted_of(const PromptShare& share) const;
  std::int64_t least_chunk(const Pass& pass, const Sequence& sequence, std::int64_t wanted) const;
  void place(Pass& pass);

  const SchedulerOptions& options_;
  KvCache& kv_;
  const WaitingQueue& waiting_;
  const StepCost& cost_;
  const TimeBounds& bounds_;
  const Lists& lists_;
  Running& running_;
  double uncut_seconds_ = std::numeric_limits<double>::infinity();  // time of steps since the last cut slice
  double oldest_credit_ = 0.0;                                      // tokens that are due to the oldest prompt
};

}  // namespace quire
