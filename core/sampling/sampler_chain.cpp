#include "core/sampling/sampler_chain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/sampling/philox.h"
#include "core/sampling/softmax.h"

namespace quire {

namespace {

constexpr SamplerStep kTemperatureFirst[] = {SamplerStep::kPenalties,   SamplerStep::kDry,  SamplerStep::kTopNSigma,
                                             SamplerStep::kTemperature, SamplerStep::kTopK, SamplerStep::kTypicalP,
                                             SamplerStep::kTopP,        SamplerStep::kMinP, SamplerStep::kXtc};
constexpr SamplerStep kTemperatureLast[] = {SamplerStep::kPenalties, SamplerStep::kDry,      SamplerStep::kTopNSigma,
                                            SamplerStep::kTopK,      SamplerStep::kTypicalP, SamplerStep::kTopP,
                                            SamplerStep::kMinP,      SamplerStep::kXtc,      SamplerStep::kTemperature};
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

template <class Values, class Logit>
double lowest_kept(const Values& values, double best, float n, const Logit& logit) {
  double sum = 0.0;
  double count = 0.0;
  for (const auto& value : values) {
    if (!std::isfinite(logit(value))) continue;
    sum += static_cast<double>(logit(value));
    count += 1.0;
  }
  const double mean = sum / count;
  double squares = 0.0;
  for (const auto& value : values) {
    const double difference = static_cast<double>(logit(value)) - mean;
    if (std::isfinite(logit(value))) squares += difference * difference;
  }
  return best - static_cast<double>(n) * std::sqrt(squares / count);
}

}  // namespace

void cut_deviating(std::span<float> logits, float n) {
  const Maximum maximum = find_maximum(logits);
  if (maximum.id < 0) return;
  const double least = lowest_kept(logits, static_cast<double>(maximum.value), n, [](float logit) { return logit; });
  for (float& logit : logits) {
    if (static_cast<double>(logit) < least) logit = kMinusInfinity;
  }
}

SamplerChain::SamplerChain(SampleRow& row, Sampler::Scratch& scratch)
    : row_(row), scratch_(scratch), state_(*row.state), params_(row.state->params_), candidates_(scratch.candidates) {}

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
    weigh();
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
    case SamplerStep::kTopNSigma: {
      if (params_.top_n_sigma <= 0.0F) return;
      const auto best = std::ranges::min(candidates_, kBetter).logit;
      const double least = lowest_kept(candidates_, static_cast<double>(best), params_.top_n_sigma,
                                       [](const Candidate& candidate) { return candidate.logit; });
      std::erase_if(candidates_,
                    [&](const Candidate& candidate) { return static_cast<double>(candidate.logit) < least; });
      return;
    }
    case SamplerStep::kTopK:
      if (params_.top_k > 0) cut_top_k(static_cast<std::size_t>(params_.top_k));
      return;
    case SamplerStep::kTypicalP: return cut_typical();
    case SamplerStep::kTopP: return cut_top_p();
    case SamplerStep::kMinP: return cut_min_p();
    case SamplerStep::kXtc: return cut_xtc();
    case SamplerStep::kTemperature:
      return scale(params_.dynatemp_range > 0.0F ? dynamic_temperature() : params_.temperature);
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

// Weights become e^(logit - best logit).
void SamplerChain::weigh() {
  const float best = std::ranges::min(candidates_, kBetter).logit;
  for (Candidate& candidate : candidates_)
    candidate.weight = exp_nonpositive(candidate.logit - best);
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
  weigh();
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

// Moves the best `count` to the front, sorted.
void SamplerChain::sort_first(std::size_t count) {
  count = std::min(count, candidates_.size());
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  if (count < candidates_.size()) std::nth_element(candidates_.begin(), end, candidates_.end(), kBetter);
  std::sort(candidates_.begin(), end, kBetter);
}

// Number of candidates that each filter keeps at least.
std::size_t SamplerChain::least_kept() const {
  return static_cast<std::size_t>(std::max(params_.min_keep, 1));
}

// Keeps the first candidates that together reach `mass`.
void SamplerChain::keep_first(double mass) {
  double sum = 0.0;
  std::size_t kept = 0;
  while (kept < candidates_.size() && (kept < least_kept() || sum < mass))
    sum += static_cast<double>(candidates_[kept++].weight);
  candidates_.resize(kept);
}

void SamplerChain::cut_top_k(std::size_t count) {
  if (count >= candidates_.size()) return;
  sort_first(count);
  candidates_.resize(count);
}

// Sorts only as many candidates as make up the mass.
void SamplerChain::cut_top_p() {
  if (params_.top_p >= 1.0F) return;
  weigh();
  const double mass = static_cast<double>(params_.top_p) * total_weight(candidates_);
  for (std::size_t count = std::max<std::size_t>(256, least_kept());; count *= 8) {
    sort_first(count);
    double sum = 0.0;
    for (std::size_t i = 0; i < std::min(count, candidates_.size()); ++i)
      sum += static_cast<double>(candidates_[i].weight);
    if (sum >= mass || count >= candidates_.size()) break;
  }
  keep_first(mass);
}

// Keeps the tokens whose surprise is nearest to the expected one (Meister et al., 2022).
void SamplerChain::cut_typical() {
  if (params_.typical_p >= 1.0F) return;
  weigh();
  const double total = total_weight(candidates_);
  const auto surprise = [total](const Candidate& candidate) {
    return -std::log(static_cast<double>(candidate.weight) / total);
  };
  double entropy = 0.0;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight > 0.0F) entropy += static_cast<double>(candidate.weight) / total * surprise(candidate);
  }
  std::vector<double>& deviations = scratch_.deviations;  // by token
  deviations.resize(row_.logits.size());
  for (const Candidate& candidate : candidates_)
    deviations[static_cast<std::size_t>(candidate.id)] = std::abs(surprise(candidate) - entropy);
  std::sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
    const double of_a = deviations[static_cast<std::size_t>(a.id)];
    const double of_b = deviations[static_cast<std::size_t>(b.id)];
    return of_a != of_b ? of_a < of_b : kBetter(a, b);
  });
  keep_first(static_cast<double>(params_.typical_p) * total);
}

void SamplerChain::cut_min_p() {
  if (params_.min_p <= 0.0F) return;
  weigh();
  const auto is_likely = [this](const Candidate& candidate) { return candidate.weight >= params_.min_p; };
  const auto num_likely = static_cast<std::size_t>(std::ranges::count_if(candidates_, is_likely));
  if (num_likely < least_kept()) return cut_top_k(least_kept());
  std::erase_if(candidates_, [&](const Candidate& candidate) { return !is_likely(candidate); });
}

// Removes all but the least likely of the tokens that are likely enough to be good choices (p-e-w, 2024).
void SamplerChain::cut_xtc() {
  if (params_.xtc_probability <= 0.0F || params_.xtc_threshold > 0.5F) return;
  const double u = uniform(state_.seed_, state_.choice_, static_cast<std::int64_t>(row_.tokens.size()), Draw::kXtc);
  if (u >= static_cast<double>(params_.xtc_probability)) return;
  weigh();
  const double least = static_cast<double>(params_.xtc_threshold) * total_weight(candidates_);
  const auto is_likely = [least](const Candidate& candidate) { return static_cast<double>(candidate.weight) >= least; };
  const auto num_likely = static_cast<std::size_t>(std::ranges::count_if(candidates_, is_likely));
  if (num_likely < 2 || candidates_.size() - (num_likely - 1) < least_kept()) return;
  sort_first(num_likely);
  candidates_.erase(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(num_likely - 1));
}

// Keeps candidates no more surprising than the bound, at least the best; then computes their weights.
void SamplerChain::cut_surprising() {
  weigh();
  if (params_.mirostat.version == 1) {
    sort_first(kMirostatTokens);
    return cut_top_k(mirostat_count());
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
  weigh();
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
  const double u = uniform(state_.seed_, state_.choice_, static_cast<std::int64_t>(row_.tokens.size()), Draw::kToken);
  const double target = u * total_weight(candidates_);
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
