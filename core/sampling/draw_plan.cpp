#include "core/sampling/draw_plan.h"

#include <algorithm>
#include <cmath>

#include "core/sampling/philox.h"

namespace quire {

void DrawPlan::reserve(std::size_t num_draws) {
  draws_.reserve(num_draws);
  edits_end_.reserve(num_draws);
}

void DrawPlan::clear() {
  draws_.clear();
  edits_.clear();
  edits_end_.clear();
}

bool DrawPlan::draws_on_device(const SamplingParams& params) {
  return !params.is_chained() && !params.needs(DrawnBy::kSampler) && params.dry.multiplier <= 0.0F &&
         params.num_logprobs.value_or(0) <= TokenScore::kMostTop;
}

void DrawPlan::add(const SampleRow& row, std::int64_t logit_row, std::int64_t place, std::int64_t vocab_size) {
  const SamplerState& state = *row.state;
  const SamplingParams& params = state.params_;
  draws_.push_back(
      {.logit_row = logit_row,
       .place = place,
       .mask = row.mask,
       .mask2 = state.allowed_,
       .repetition_penalty = params.repetition_penalty,
       .frequency_penalty = params.frequency_penalty,
       .presence_penalty = params.presence_penalty,
       .greedy = params.temperature<kGreedyBelow, .temperature = params.temperature,
                                    .temperature_last = params.temperature_last, .top_k = params.top_k,
                                    .top_p = params.top_p, .min_p = params.min_p, .min_p_log = params.min_p> 0.0F
                     ? min_p_threshold(params.min_p)
                     : 0.0F,
       .u = row.random().uniform(Draw::kToken)});
  state.list_edits(row.tokens, row.num_prompt_tokens, vocab_size, window_, edits_);
  edits_end_.push_back(edits_.size());
}

std::span<const TokenDraw> DrawPlan::draws() {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < draws_.size(); ++i) {
    draws_[i].edits = std::span(edits_).subspan(begin, edits_end_[i] - begin);
    begin = edits_end_[i];
  }
  return draws_;
}

}  // namespace quire
