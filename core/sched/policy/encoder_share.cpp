#include "core/sched/policy/encoder_share.h"

#include <algorithm>

namespace quire {

namespace {

constexpr double kLongestSlice = 0.25;  // seconds, if steps are unbounded
constexpr double kLeastShare = 0.1;     // share of a step's bound for the encoder
constexpr double kStepShare = 0.5;      // largest share of a step's bound for the model while media are to be encoded

}  // namespace

double EncoderShare::most_of_model() const {
  return kStepShare * (target_s > 0.0 ? std::min(target_s, longest_s) : longest_s);
}

double EncoderShare::seconds_beside(const StepPlan& plan) const {
  const bool streams = plan.num_streaming > 0;
  const double limit = streams && target_s > 0.0 ? target_s : std::min(longest_s, kLongestSlice);
  return std::clamp(limit - plan.predicted_seconds, kLeastShare * limit, limit);
}

}  // namespace quire
