#include "core/sampling/distribution.h"

#include <algorithm>
#include <cmath>

#include "core/sampling/candidates.h"
#include "core/sampling/softmax.h"

namespace quire {

namespace {

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

void keep_first(Candidates& candidates, double mass, std::size_t least) {
  double sum = 0.0;
  std::size_t kept = 0;
  while (kept < candidates.size() && (kept < least || sum < mass))
    sum += static_cast<double>(candidates[kept++].weight);
  candidates.resize(kept);
}

void cut_deviating(std::span<float> logits, float n) {
  const Maximum maximum = find_maximum(logits);
  if (maximum.id < 0) return;
  const double least = lowest_kept(logits, static_cast<double>(maximum.value), n, [](float logit) { return logit; });
  for (float& logit : logits) {
    if (static_cast<double>(logit) < least) logit = kMinusInfinity;
  }
}

void Distribution::weigh() {
  if (settings_.is_sorted) return;
  const float best = std::ranges::min(candidates_, kBetter).logit;
  for (Candidate& candidate : candidates_)
    candidate.weight = exp_nonpositive(candidate.logit - best);
}

double Distribution::total() const {
  return total_weight(candidates_);
}

// weigh() gives the best a weight of 1.
float Distribution::best() const {
  return settings_.is_sorted ? candidates_.front().weight : 1.0F;
}

void Distribution::sort_first(std::size_t count) {
  if (settings_.is_sorted) return;
  count = std::min(count, candidates_.size());
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  if (count < candidates_.size()) std::nth_element(candidates_.begin(), end, candidates_.end(), kBetter);
  std::sort(candidates_.begin(), end, kBetter);
}

void Distribution::keep_first(double mass) {
  quire::keep_first(candidates_, mass, settings_.least_kept);
}

void Distribution::keep_best(std::size_t count) {
  if (count >= candidates_.size()) return;
  sort_first(count);
  candidates_.resize(count);
}

// Sorts only as many candidates as make up the mass.
void Distribution::keep_mass(double mass) {
  for (std::size_t count = std::max<std::size_t>(256, settings_.least_kept); !settings_.is_sorted; count *= 8) {
    sort_first(count);
    double sum = 0.0;
    for (std::size_t i = 0; i < std::min(count, candidates_.size()); ++i)
      sum += static_cast<double>(candidates_[i].weight);
    if (sum >= mass || count >= candidates_.size()) break;
  }
  keep_first(mass);
}

// Meister et al., 2022.
void Distribution::keep_typical(double share) {
  const double total = total_weight(candidates_);
  double entropy = 0.0;
  for (const Candidate& candidate : candidates_) {
    const double p = static_cast<double>(candidate.weight) / total;
    if (p > 0.0) entropy -= p * std::log(p);
  }
  const auto sort_by = [this](const auto& deviation) {
    std::sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
      const double of_a = deviation(a);
      const double of_b = deviation(b);
      return of_a != of_b ? of_a < of_b : kBetter(a, b);
    });
  };
  if (settings_.is_sorted) {
    const double log_total = std::log(total);
    sort_by([=](const Candidate& each) { return std::abs(log_total - static_cast<double>(each.logit) - entropy); });
  } else {
    deviations_.resize(settings_.vocab_size);
    const auto deviation = [this](const Candidate& each) -> double& {
      return deviations_[static_cast<std::size_t>(each.id)];
    };
    for (const Candidate& each : candidates_)
      deviation(each) = std::abs(-std::log(static_cast<double>(each.weight) / total) - entropy);
    sort_by(deviation);
  }
  keep_first(share * total);
  if (settings_.is_sorted) std::sort(candidates_.begin(), candidates_.end(), kBetter);
}

// Number of candidates with at least this weight; of sorted ones the first.
std::size_t Distribution::count_likely(double least) const {
  const auto is_likely = [least](const Candidate& candidate) { return static_cast<double>(candidate.weight) >= least; };
  if (!settings_.is_sorted) return static_cast<std::size_t>(std::ranges::count_if(candidates_, is_likely));
  return static_cast<std::size_t>(std::ranges::find_if_not(candidates_, is_likely) - candidates_.begin());
}

void Distribution::keep_above(float least_weight) {
  const std::size_t num_likely = count_likely(static_cast<double>(least_weight));
  if (num_likely < settings_.least_kept) return keep_best(settings_.least_kept);
  if (settings_.is_sorted) return candidates_.resize(num_likely);
  std::erase_if(candidates_, [=](const Candidate& candidate) { return candidate.weight < least_weight; });
}

void Distribution::keep_within(float n) {
  const auto best = std::ranges::min(candidates_, kBetter).logit;
  const double least = lowest_kept(candidates_, static_cast<double>(best), n,
                                   [](const Candidate& candidate) { return candidate.logit; });
  std::erase_if(candidates_,
                [least](const Candidate& candidate) { return static_cast<double>(candidate.logit) < least; });
}

void Distribution::drop_above(double weight) {
  const std::size_t num_likely = count_likely(weight);
  if (num_likely < 2 || candidates_.size() - (num_likely - 1) < settings_.least_kept) return;
  sort_first(num_likely);
  candidates_.erase(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(num_likely - 1));
}

}  // namespace quire
