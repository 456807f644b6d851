#include "core/sched/time_bounds.h"

namespace quire {

namespace {

constexpr double kLeastStreamsPart = 0.5;  // for streams, even if a prompt's least chunk costs more than the rest
// scheduler.max_step_time: auto. A step's fixed price is at most a quarter of it: weights are read again.
constexpr double kShortestAutoStep = 0.25;
constexpr double kAutoStepOfFixed = 4.0;

}  // namespace

double TimeBounds::longest() const {
  if (options_.max_step_time_ms == 0.0) return kNoTimeLimit;
  if (options_.max_step_time_ms > 0.0) return std::max(options_.max_step_time_ms / 1000.0, cost_.least_step_seconds());
  return std::max(kShortestAutoStep, kAutoStepOfFixed * cost_.fixed_seconds());
}

bool TimeBounds::expects_prompts(const Pass& pass) const {
  return !pass.prompts.empty() || (waiting_.num_ready() > 0 && running_.num_places_left() > 0);
}

double TimeBounds::for_streams(const Pass& pass, double most) const {
  if (!expects_prompts(pass) || most == kNoTimeLimit) return most;
  return std::clamp(most - cost_.prompt_seconds(0, kMinPromptChunk), kLeastStreamsPart * most, kStreamsPart * most);
}

}  // namespace quire
