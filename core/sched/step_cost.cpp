#include "core/sched/step_cost.h"

#include <algorithm>

namespace quire {

namespace {

constexpr double kNewestShare = 0.1;  // of the newest observation: about ten steps of memory

void blend(double& average, double value) {
  average = average == 0.0 ? value : average + kNewestShare * (value - average);
}

}  // namespace

void StepCost::observe(std::int64_t num_streaming, std::int64_t num_prompt_tokens, double seconds) {
  if (seconds <= 0.0) return;
  if (num_prompt_tokens == 0) {
    if (num_streaming > 0) blend(streaming_step_s_, seconds);
    return;
  }
  const double base = num_streaming > 0 ? std::min(streaming_step_s_, seconds) : 0.0;
  blend(prompt_token_s_, (seconds - base) / static_cast<double>(num_prompt_tokens));
}

std::int64_t StepCost::prompt_tokens_within(double target_s, std::int64_t unknown) const {
  if (prompt_token_s_ <= 0.0) return unknown;
  return static_cast<std::int64_t>(std::max(target_s - streaming_step_s_, streaming_step_s_) / prompt_token_s_);
}

}  // namespace quire
