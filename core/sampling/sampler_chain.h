// SamplerChain: draws a row's token by samplers that are applied one after another, as in llama.cpp: in any order,
// with dynamic temperature, min_keep, mirostat or adaptive-p, and by filters that only it knows. Engine thread and its
// compute threads; one row at a time. Invariant: the Sampler's; with mirostat and adaptive-p earlier draws count too,
// through SamplerState::observe.
#pragma once

#include "core/sampling/candidates.h"
#include "core/sampling/distribution.h"
#include "core/sampling/sampler.h"

namespace quire {

class SamplerChain {
 public:
  SamplerChain(SampleRow& row, Sampler::Scratch& scratch);
  void sample();

 private:
  void gather();
  void apply(SamplerStep step);
  void apply_to_row(SamplerStep step);
  void scatter();
  void scale(float temperature);
  void keep_best_only();
  float dynamic_temperature();
  void cut_surprising();
  std::size_t mirostat_count() const;
  void favour_target();
  const Candidate* draw();

  SampleRow& row_;
  Sampler::Scratch& scratch_;
  const SamplerState& state_;
  const SamplingParams& params_;
  Candidates& candidates_;
  Distribution kept_;
};

}  // namespace quire
