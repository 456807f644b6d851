#include "core/sim/distribution.h"

#include <cmath>

namespace quire::sim {

void Distribution::merge(const Distribution& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    buckets_[i] += other.buckets_[i];
  num_values_ += other.num_values_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

double Distribution::percentile(double percent) const {
  if (num_values_ == 0) return 0.0;
  const auto rank = static_cast<std::uint64_t>(std::ceil(percent / 100.0 * static_cast<double>(num_values_)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen < std::max<std::uint64_t>(rank, 1)) continue;
    const auto middle = (static_cast<std::uint32_t>(i) + kFirst) * (1U << kShift) + (1U << (kShift - 1));
    return std::min(static_cast<double>(std::bit_cast<float>(middle)), max_);
  }
  return max_;
}

}  // namespace quire::sim
