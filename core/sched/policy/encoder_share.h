// EncoderShare: the encoder's part of the time of steps. Pure; any thread.
#pragma once

#include <limits>

#include "core/sched/step_plan.h"

namespace quire {

struct EncoderShare {
  double target_s = 0.0;                                       // between tokens of streams; 0: none
  double longest_s = std::numeric_limits<double>::infinity();  // bound of a step

  // Most time for the model in a step while media are to be encoded.
  double most_of_model() const;
  // Time for the encoder beside this step.
  double seconds_beside(const StepPlan& plan) const;
};

}  // namespace quire
