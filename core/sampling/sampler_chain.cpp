#include "core/sampling/sampler_chain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/sampling/softmax.h"

namespace quire {

namespace {

constexpr auto kTemperatureFirst = usual_order(false);
constexpr auto kTemperatureLast = usual_order(true);
// Mirostat replaces the filters and penalties.
constexpr SamplerStep kOfMirostat[] = {SamplerStep::kTemperature};

std::span<const SamplerStep> steps_of(const SamplingParams& params) {
  if (params.mirostat.version != 0) return kOfMirostat;
  if (params.order) return *params.order;
  return params.temperature_last ? std::span<const SamplerStep>(kTemperatureLast) : kTemperatureFirst;
}

// Number of likeliest tokens that mirostat's first version examines.
constexpr std::size_t kMirostatTokens = 100;
// adaptive-p's bonus around its target: width, peak, sharpness of its fall.
constexpr float kTargetWidth = 0.3F;
constexpr float kTargetPeak = 5.0F;
constexpr float kTargetSharpness = 10.0F;

}  // namespace

SamplerChain::SamplerChain(SampleRow& row, Sampler::Scratch& scratch)
    : row_(row),
      scratch_(scratch),
      state_(*row.state),
      params_(row.state->params_),
      candidates_(scratch.candidates),
      kept_(candidates_, scratch.deviations,
            {.random = row.random(),
             .vocab_size = row.logits.size(),
             .least_kept = static_cast<std::size_t>(std::max(params_.min_keep, 1))}) {}

void SamplerChain::sample() {
  state_.apply_limits(row_.logits, row_.tokens, row_.num_prompt_tokens);
  gather();
  if (candidates_.empty()) {
    row_.drawn.has_no_numbers =
        std::any_of(row_.logits.begin(), row_.logits.end(), [](float logit) { return std::isnan(logit); });
    return;
  }
  // A forced token is no draw: what follows must not depend on whether the model was asked for it.
  const bool is_forced = candidates_.size() == 1;
  for (const SamplerStep step : steps_of(params_))
    apply(step);
  if (params_.mirostat.version != 0) {
    cut_surprising();
  } else if (params_.adaptive.target >= 0.0F) {
    favour_target();
  } else {
    kept_.weigh();
  }
  const Candidate* const drawn = draw();
  row_.drawn.token = TokenId{drawn->id};
  if (is_forced) return;
  if (params_.mirostat.version != 0) {
    const double share = static_cast<double>(drawn->weight) / total_weight(candidates_);
    row_.drawn.observed = static_cast<float>(-std::log2(share));
  } else if (params_.adaptive.target >= 0.0F) {
    row_.drawn.observed = drawn->logit;  // the probability before the bonus
  }
}

// Gathers all allowed tokens by ascending id. An infinite logit leaves the others no share.
void SamplerChain::gather() {
  candidates_.clear();
  const bool has_infinite = std::any_of(row_.logits.begin(), row_.logits.end(),
                                        [](float logit) { return std::isinf(logit) && logit > 0.0F; });
  for (std::size_t i = 0; i < row_.logits.size(); ++i) {
    const float logit = row_.logits[i];
    if (has_infinite ? std::isinf(logit) && logit > 0.0F : std::isfinite(logit))
      candidates_.push_back({has_infinite ? 0.0F : logit, static_cast<std::int32_t>(i), 0.0F});
  }
}

void SamplerChain::apply(SamplerStep step) {
  if (candidates_.size() < 2) return;
  switch (step) {
    case SamplerStep::kPenalties:
    case SamplerStep::kDry: return apply_to_row(step);
    case SamplerStep::kTemperature:
      return scale(params_.dynatemp_range > 0.0F ? dynamic_temperature() : params_.temperature);
    default: return params_.cut(step, kept_);
  }
}

// Penalties find tokens by id: they are applied to the whole row, but only candidates count.
void SamplerChain::apply_to_row(SamplerStep step) {
  scatter();
  if (step == SamplerStep::kPenalties) {
    state_.apply_penalties(row_.logits, row_.tokens, scratch_.state);
  } else {
    state_.apply_dry(row_.logits, row_.tokens, scratch_.state);
  }
  gather();
}

void SamplerChain::scatter() {
  std::fill(row_.logits.begin(), row_.logits.end(), kMinusInfinity);
  for (const Candidate& candidate : candidates_)
    row_.logits[static_cast<std::size_t>(candidate.id)] = candidate.logit;
}

void SamplerChain::scale(float temperature) {
  if (temperature < kGreedyBelow) return keep_best_only();
  for (Candidate& candidate : candidates_)
    candidate.logit /= temperature;
}

void SamplerChain::keep_best_only() {
  const Candidate best = std::ranges::min(candidates_, kBetter);
  candidates_.assign(1, best);
}

// The entropy's share of its maximum decides between temperature - range and temperature + range.
float SamplerChain::dynamic_temperature() {
  kept_.weigh();
  const double total = total_weight(candidates_);
  double entropy = 0.0;
  for (const Candidate& candidate : candidates_) {
    const double p = static_cast<double>(candidate.weight) / total;
    if (p > 0.0) entropy -= p * std::log(p);
  }
  const double share = entropy / std::log(static_cast<double>(candidates_.size()));
  const float lowest = std::max(0.0F, params_.temperature - params_.dynatemp_range);
  const float highest = params_.temperature + params_.dynatemp_range;
  const double exponent = static_cast<double>(params_.dynatemp_exponent);
  return lowest + (highest - lowest) * static_cast<float>(std::pow(share, exponent));
}

// Keeps candidates no more surprising than the bound, at least the best; then computes their weights.
void SamplerChain::cut_surprising() {
  kept_.weigh();
  if (params_.mirostat.version == 1) {
    kept_.sort_first(kMirostatTokens);
    return kept_.keep_best(mirostat_count());
  }
  const double bound = static_cast<double>(state_.surprise_bound_);
  const double total = total_weight(candidates_);
  const auto surprises = [&](const Candidate& candidate) {
    return -std::log2(static_cast<double>(candidate.weight) / total) > bound;
  };
  if (std::ranges::all_of(candidates_, surprises)) return keep_best_only();
  std::erase_if(candidates_, surprises);
}

// Number of likeliest tokens with the wanted surprise, if probabilities follow Zipf's law with the exponent estimated
// from the candidates. Equation (30) of the paper and its algorithm 1.
std::size_t SamplerChain::mirostat_count() const {
  double products = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i + 1 < std::min(kMirostatTokens, candidates_.size()); ++i) {
    const double step = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double fall = static_cast<double>(candidates_[i].logit) - static_cast<double>(candidates_[i + 1].logit);
    products += step * fall;
    squares += step * step;
  }
  if (squares == 0.0) return 1;
  const double exponent = products / squares;
  const double excess = exponent - 1.0;
  const double num_tokens = static_cast<double>(row_.logits.size());
  const double ratio = excess == 0.0 ? 1.0 / std::log(num_tokens) : excess / (1.0 - std::pow(num_tokens, -excess));
  const double count = std::pow(ratio * std::exp2(static_cast<double>(state_.surprise_bound_)), 1.0 / exponent);
  if (!(count >= 1.0)) return 1;
  return count < static_cast<double>(candidates_.size()) ? static_cast<std::size_t>(count) : candidates_.size();
}

// Weights by the distance of a probability from the target, corrected by earlier draws. `logit` becomes the
// probability.
void SamplerChain::favour_target() {
  kept_.weigh();
  const double total = total_weight(candidates_);
  const float so_far = state_.drawn_weight_ / state_.drawn_total_;
  const float target = std::clamp(2.0F * params_.adaptive.target - so_far, 0.0F, 1.0F);
  float best = kMinusInfinity;
  for (Candidate& candidate : candidates_) {
    candidate.logit = static_cast<float>(static_cast<double>(candidate.weight) / total);
    const float distance = std::abs(candidate.logit - target) / kTargetWidth;
    candidate.weight = kTargetPeak - kTargetSharpness * distance * distance / (1.0F + distance);
    best = std::max(best, candidate.weight);
  }
  for (Candidate& candidate : candidates_)
    candidate.weight = exp_nonpositive(candidate.weight - best);
}

const Candidate* SamplerChain::draw() {
  const double target = kept_.random().uniform(Draw::kToken) * total_weight(candidates_);
  double sum = 0.0;
  const Candidate* last = &candidates_.front();
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight <= 0.0F) continue;
    last = &candidate;
    sum += static_cast<double>(candidate.weight);
    if (sum > target) break;
  }
  return last;
}

}  // namespace quire
