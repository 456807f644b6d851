// Streams: continues sequences past their prompts. All continue, and preempt less important ones for their blocks. If
// that would exceed the longest step, they take turns in the order of importance, lists apart; at least one continues.
// While there are prompts, streams leave them a quarter of the longest step, or up to half if sixteen tokens of a
// prompt cost more than a quarter. Engine thread only.
#pragma once

#include <optional>

#include "core/sched/importance.h"
#include "core/sched/pass.h"
#include "core/sched/policy/background.h"
#include "core/sched/policy/lists.h"
#include "core/sched/running.h"
#include "core/sched/step_cost.h"
#include "core/sched/time_bounds.h"

namespace quire {

class Streams {
 public:
  Streams(const StepCost& cost, const TimeBounds& bounds, const Lists& lists, const Background& background,
          Running& running)
      : cost_(cost), bounds_(bounds), lists_(lists), background_(background), running_(running) {}

  void fit(Pass& pass);

 private:
  void choose(Pass& pass);
  void take_turns(const Pass& pass, bool of_lists, double limit, StepTerms& terms, std::optional<Importance>& last);
  void place(Pass& pass);

  const StepCost& cost_;
  const TimeBounds& bounds_;
  const Lists& lists_;
  const Background& background_;
  Running& running_;
  std::optional<Importance> last_turn_;       // the last that continued, if not all fit a step
  std::optional<Importance> last_list_turn_;  // the same for lists
};

}  // namespace quire
