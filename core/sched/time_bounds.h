// TimeBounds: the longest time of a step, and of the streams in it. Engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/sched/pass.h"
#include "core/sched/running.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/step_cost.h"
#include "core/sched/waiting_queue.h"

namespace quire {

inline constexpr std::int64_t kMinPromptChunk = 16;

class TimeBounds {
 public:
  TimeBounds(const SchedulerOptions& options, const StepCost& cost, const WaitingQueue& waiting, const Running& running)
      : options_(options), cost_(cost), waiting_(waiting), running_(running) {}

  // The longest predicted time of a step while a request waits or streams, seconds, at least
  // StepCost::least_step_seconds(); infinite where that is off.
  double longest() const;
  // Whether prompts are to be computed in this step or soon, beside its streams.
  bool expects_prompts(const Pass& pass) const;
  // The time that streams may take of a step of `most` seconds: a share is left to prompts.
  double for_streams(const Pass& pass, double most) const;
  // `limit`, or more if the streams alone take most of it, so that prompts advance too.
  static double with_prompts(double limit, double streams_seconds) {
    return std::max(limit, streams_seconds / kStreamsPart);
  }

 private:
  static constexpr double kStreamsPart = 0.75;  // the most for streams, while there are prompts

  const SchedulerOptions& options_;
  const StepCost& cost_;
  const WaitingQueue& waiting_;
  const Running& running_;
};

}  // namespace quire
