// DrawPlan: what a device needs to draw some tokens itself, from the parameters and states of their sequences. Engine
// thread only. Invariant: a token drawn by the plan is the Sampler's. Whether a row is drawn by the device depends on
// its request's parameters alone.
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
  // Room for so many draws.
  void reserve(std::size_t num_draws);
  void clear();

  // Whether a device draws as these parameters say: with masks, biases, penalties, temperature, top_k, top_p and min_p,
  // and few logprobs.
  static bool draws_on_device(const SamplingParams& params);
  static bool draws_on_device(const SamplerState& state) { return draws_on_device(state.params_); }
  // Whether the logprob of what is drawn is wanted, and with how many of the likeliest.
  static std::optional<std::int32_t> num_logprobs(const SamplerState& state) { return state.params_.num_logprobs; }
  // A draw of such parameters; the fields of `row` but for its logits. The mask is viewed until clear().
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
