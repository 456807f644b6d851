// StepCost: what a step costs, learned from the steps that were: a base for those who stream, and a price per prompt
// token. Engine thread only. Exponential averages, so that it follows the load; no clock of its own.
#pragma once

#include <cstdint>

namespace quire {

class StepCost {
 public:
  void observe(std::int64_t num_streaming, std::int64_t num_prompt_tokens, double seconds);
  // Prompt tokens that fit a step of `target_s` seconds beside those who stream, or take as long as these do where that
  // is more: prompts are not starved by a target that streams alone use up. `unknown` before anything was measured.
  std::int64_t prompt_tokens_within(double target_s, std::int64_t unknown) const;
  double prompt_token_seconds() const { return prompt_token_s_; }
  double prompt_seconds(double num_tokens) const { return prompt_token_s_ * num_tokens; }

 private:
  double streaming_step_s_ = 0.0;  // a step without prompt tokens
  double prompt_token_s_ = 0.0;    // each prompt token more
};

}  // namespace quire
