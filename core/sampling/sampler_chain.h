// SamplerChain: draws a row's token by samplers that are applied one after another, as in llama.cpp: in any order,
// with dynamic temperature, min_keep, mirostat or adaptive-p. Engine thread and its compute threads; one row at a
// time. Invariant: the Sampler's; with mirostat and adaptive-p earlier draws count too, through
// SamplerState::observe.
#pragma once

#include <span>

#include "core/sampling/candidates.h"
#include "core/sampling/sampler.h"

namespace quire {

// Sets logits more than `n` standard deviations below the best to minus infinity.
void cut_deviating(std::span<float> logits, float n);

class SamplerChain {
 public:
  SamplerChain(SampleRow& row, Sampler::Scratch& scratch);
  void sample();

 private:
  void gather();
  void apply(SamplerStep step);
  void apply_to_row(SamplerStep step);
  void scatter();
  void weigh();
  void scale(float temperature);
  void keep_best_only();
  float dynamic_temperature();
  void sort_first(std::size_t count);
  void keep_first(double mass);
  void cut_top_k(std::size_t count);
  void cut_top_p();
  void cut_typical();
  void cut_min_p();
  void cut_xtc();
  std::size_t least_kept() const;
  void cut_surprising();
  std::size_t mirostat_count() const;
  void favour_target();
  const Candidate* draw();

  SampleRow& row_;
  Sampler::Scratch& scratch_;
  const SamplerState& state_;
  const SamplingParams& params_;
  Candidates& candidates_;
};

}  // namespace quire
