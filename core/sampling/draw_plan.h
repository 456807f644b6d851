// DrawPlan: the arrays that a device needs to draw tokens itself, from the parameters and states of their sequences.
// Engine thread only. Invariant: a token drawn by the plan is the Sampler's. Only its request's parameters decide
// whether the device draws a row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/sampling/sampler.h"
#include "kernels/step_ops.h"

namespace quire {

class DrawPlan {
 public:
  // Reserves memory for `num_draws` draws.
  void reserve(std::size_t num_draws);
  void clear();

  // Whether a device supports these parameters: masks, biases, penalties, temperature, top_k, top_p and min_p, and few
  // logprobs.
  static bool draws_on_device(const SamplingParams& params);
  static bool draws_on_device(const SamplerState& state) { return draws_on_device(state.params_); }
  // Number of likeliest tokens whose logprobs are wanted with the drawn one's; nothing: no logprobs.
  static std::optional<std::int32_t> num_logprobs(const SamplerState& state) { return state.params_.num_logprobs; }
  // Adds a draw with supported parameters, by the fields of `row` except its logits. The mask is viewed until clear().
  void add(const SampleRow& row, std::int64_t logit_row, std::int64_t place, std::int64_t vocab_size);

  // Valid until the next add() or clear().
  std::span<const TokenDraw> draws();

 private:
  std::vector<TokenDraw> draws_;
  std::vector<DrawEdit> edits_;
  std::vector<std::size_t> edits_end_;  // by draw
  std::vector<std::int32_t> window_;
};

}  // namespace quire
