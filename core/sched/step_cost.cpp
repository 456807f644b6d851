#include "core/sched/step_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire {

namespace {

constexpr double kNoise = 0.1;         // relative difference in time of two equal steps
constexpr double kSpeedDrift = 0.03;   // drift of all prices together, per step
constexpr double kSurprise = 0.15;     // larger relative errors are taken for a change of the machine's speed
constexpr double kMostFaster = 0.6;    // largest gain of speed that one step can show
constexpr double kMostSlower = 1.0;    // largest loss of speed that one step can show
constexpr double kPriceDrift = 0.003;  // drift of each price by itself, per step
constexpr double kLeastDrift =
    0.001;  // least drift of a price as a share of the step's time, so that a price of zero can rise again
constexpr double kMostUncertain = 3.0;  // times a price, even if it was not measured for long
// The uncertainty of each price before any measurement, in times of the first step. It favours the prices of tokens
// over the fixed one: a token price that is too high is soon corrected, and causes no long step.
constexpr StepVector kFirstGuess = {2.0, 0.5, 0.5, 0.2, 0.05};

constexpr std::int64_t kFirstPromptTokens = 16;
constexpr double kMostGrowth = 4.0;  // times the most prompt tokens that one step computed

double dot(const StepVector& a, const StepVector& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

double prompt_ktokens(std::int64_t num_computed, std::int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens);
  return n * (static_cast<double>(num_computed) + 0.5 * n) / 1000.0;
}

}  // namespace

void StepTerms::add_stream(std::int64_t num_computed, std::int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens);
  num_streams += n;
  stream_ktokens += n * (static_cast<double>(num_computed) + 0.5 * (n - 1.0)) / 1000.0;
}

void StepTerms::add_prompt(std::int64_t num_computed, std::int64_t num_tokens) {
  num_prompt_tokens += static_cast<double>(num_tokens);
  prompt_ktokens += quire::prompt_ktokens(num_computed, num_tokens);
}

StepVector StepTerms::vector() const {
  return {1.0, num_streams, num_prompt_tokens, stream_ktokens, prompt_ktokens};
}

double StepPrice::seconds(const StepTerms& terms) const {
  return dot(vector(), terms.vector());
}

StepVector StepPrice::vector() const {
  return {fixed, stream, prompt_token, stream_ktoken, prompt_ktoken};
}

StepPrice StepPrice::of(const StepVector& prices) {
  return {prices[0], prices[1], prices[2], prices[3], prices[4]};
}

void StepCost::begin(double seconds) {
  for (std::size_t i = 0; i < kNumStepTerms; ++i)
    covariance_[i][i] = kFirstGuess[i] * kFirstGuess[i] * seconds * seconds;
  is_known_ = true;
}

// The standard deviation of the prediction that follows from that of the prices.
double StepCost::uncertainty(const StepVector& terms) const {
  double variance = 0.0;
  for (std::size_t i = 0; i < kNumStepTerms; ++i)
    variance += terms[i] * dot(covariance_[i], terms);
  return std::sqrt(std::max(variance, 0.0));
}

void StepCost::drift(const StepVector& terms, double seconds, double speed) {
  for (std::size_t i = 0; i < kNumStepTerms; ++i) {
    for (std::size_t j = 0; j < kNumStepTerms; ++j)
      covariance_[i][j] += speed * speed * prices_[i] * prices_[j];
    const double least = terms[i] > 0.0 ? kLeastDrift * seconds / std::max(terms[i], 1.0) : 0.0;
    const double own = std::max(kPriceDrift * prices_[i], least);
    covariance_[i][i] += own * own;
  }
  // Bounds the uncertainty of a price that was not measured for long.
  for (std::size_t i = 0; i < kNumStepTerms; ++i) {
    const double most = kMostUncertain * prices_[i] + kFirstGuess[i] * seconds;
    const double excess = covariance_[i][i] / (most * most);
    if (excess <= 1.0) continue;
    const StepVector with_it = covariance_[i];
    const double share = (1.0 - 1.0 / excess) / with_it[i];
    for (std::size_t j = 0; j < kNumStepTerms; ++j) {
      for (std::size_t k = 0; k < kNumStepTerms; ++k)
        covariance_[j][k] -= share * with_it[j] * with_it[k];
    }
  }
}

void StepCost::observe(const StepTerms& terms, double seconds) {
  if (!(seconds > 0.0) || !std::isfinite(seconds)) return;
  most_prompt_tokens_ = std::max(most_prompt_tokens_, terms.num_prompt_tokens);
  if (!is_known_) begin(seconds);
  const StepVector in_step = terms.vector();
  const double predicted = dot(prices_, in_step);
  // If the uncertainty exceeds the prediction itself, as for the first streams after a long prompt, an error corrects
  // the prices and says nothing of the machine's speed.
  const bool was_priced = predicted > uncertainty(in_step);
  const double surprise = was_priced
                              ? std::clamp(seconds - predicted, -kMostFaster * predicted, kMostSlower * predicted)
                              : seconds - predicted;
  const double relative = was_priced ? std::abs(surprise) / predicted : 0.0;
  drift(in_step, seconds, std::max(kSpeedDrift, relative - kSurprise));
  StepVector gain{};
  for (std::size_t i = 0; i < kNumStepTerms; ++i)
    gain[i] = dot(covariance_[i], in_step);
  const double noise = kNoise * std::max(seconds, predicted);
  const double variance = dot(in_step, gain) + noise * noise;
  for (std::size_t i = 0; i < kNumStepTerms; ++i)
    prices_[i] += gain[i] / variance * surprise;
  for (std::size_t i = 0; i < kNumStepTerms; ++i) {
    for (std::size_t j = 0; j < kNumStepTerms; ++j)
      covariance_[i][j] -= gain[i] * gain[j] / variance;
  }
  keep_positive();
}

// Finds the likeliest prices of which none is below zero. When a price is raised to zero, the others fall as far as
// they are correlated with it. Otherwise their sum would be too large, and the next step would take that for a change
// of the machine's speed.
void StepCost::keep_positive() {
  for (std::size_t pass = 0; pass < kNumStepTerms; ++pass) {
    const auto lowest = static_cast<std::size_t>(std::ranges::min_element(prices_) - prices_.begin());
    const double below = prices_[lowest];
    if (below >= 0.0) return;
    for (std::size_t i = 0; i < kNumStepTerms; ++i)
      prices_[i] -= covariance_[i][lowest] / covariance_[lowest][lowest] * below;
    prices_[lowest] = 0.0;
  }
  for (double& price : prices_)
    price = std::max(price, 0.0);
}

double StepCost::prompt_seconds(std::int64_t num_computed, std::int64_t num_tokens) const {
  return prices_[2] * static_cast<double>(num_tokens) + prices_[4] * prompt_ktokens(num_computed, num_tokens);
}

std::int64_t StepCost::prompt_tokens_within(double seconds, std::int64_t num_computed) const {
  if (seconds <= 0.0) return 0;
  const double trusted = std::max(static_cast<double>(kFirstPromptTokens), kMostGrowth * most_prompt_tokens_);
  // price * n + context price * (n * num_computed + n^2 / 2) = seconds
  const double square = prices_[4] / 2000.0;
  const double linear = prices_[2] + prices_[4] * static_cast<double>(num_computed) / 1000.0;
  double fitting = std::numeric_limits<double>::infinity();
  if (linear > 0.0) fitting = 2.0 * seconds / (linear + std::sqrt(linear * linear + 4.0 * square * seconds));
  return static_cast<std::int64_t>(std::min(fitting, trusted));
}

}  // namespace quire
