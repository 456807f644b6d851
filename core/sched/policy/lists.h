// Lists: bounds the prompts of lists after their first. They hold at most three quarters of the places. Beside other
// sequences they use a step's first 25 ms (or three times its fixed price); after 64 steps without others they use
// whole steps. Engine thread only.
#pragma once

#include <cstdint>

#include "core/sched/running.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/sequence.h"
#include "core/sched/step_cost.h"

namespace quire {

class Lists {
 public:
  Lists(const SchedulerOptions& options, const StepCost& cost, const Running& running)
      : options_(options), cost_(cost), running_(running) {}

  void began(const Sequence& sequence) { num_ += sequence.continues_list ? 1 : 0; }
  void ended(const Sequence& sequence) { num_ -= sequence.continues_list ? 1 : 0; }
  // num_sequences: all sequences that wait or run.
  void begin_step(std::int64_t num_sequences);

  // The longest step with sequences of lists; infinite while there are none, or nothing else.
  double step_seconds() const;
  // Whether another prompt of a list may start. A quarter of the places is kept for others.
  bool has_place() const;

 private:
  const SchedulerOptions& options_;
  const StepCost& cost_;
  const Running& running_;
  std::int64_t num_ = 0;  // sequences of lists that wait or run
  std::int64_t num_steps_alone_ = 0;
};

}  // namespace quire
