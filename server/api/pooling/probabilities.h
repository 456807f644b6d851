// A classifier's scores as probabilities. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace quire {

inline std::vector<double> as_doubles(std::span<const float> scores) {
  return {scores.begin(), scores.end()};
}

// Sigmoid of a single score; softmax of several.
inline std::vector<double> probabilities(std::span<const float> scores) {
  std::vector<double> out = as_doubles(scores);
  if (out.size() == 1) return {1.0 / (1.0 + std::exp(-out[0]))};
  if (out.empty()) return out;
  const double highest = *std::max_element(out.begin(), out.end());
  double sum = 0.0;
  for (double& value : out)
    sum += value = std::exp(value - highest);
  for (double& value : out)
    value /= sum;
  return out;
}

}  // namespace quire
