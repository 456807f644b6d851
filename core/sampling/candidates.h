// Candidates: the tokens that can still be drawn, while samplers cut them down. Pure functions; any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace quire {

// A temperature so low that dividing by it would overflow; greedy in all but name.
inline constexpr float kGreedyBelow = 1e-5F;

// Logit, relative to the best one, above which min_p keeps tokens.
inline float min_p_threshold(float min_p) {
  return std::log(min_p) - 1e-3F;
}

struct Candidate {
  float logit;  // the Sampler's own order: relative to the maximum, divided by the temperature
  std::int32_t id;
  float weight;  // in proportion to its probability
};
using Candidates = std::vector<Candidate>;

inline constexpr auto kBetter = [](const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

inline double total_weight(const Candidates& candidates) {
  double total = 0.0;
  for (const Candidate& candidate : candidates)
    total += static_cast<double>(candidate.weight);
  return total;
}

}  // namespace quire
