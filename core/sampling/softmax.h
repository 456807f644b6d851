// Passes over a row of logits: maximum, exponentials and their sums, ids above a threshold, masks. Any thread.
// Invariant: the order of additions depends on the length alone, so that the same logits always give the same bits.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace quire {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// e^x for x <= 0, to 2 units in the last place; 0 below -87.
float exp_nonpositive(float x);

// The largest logit and its lowest id; NaN counts as minus infinity. id -1: no logit is above minus infinity.
struct Maximum {
  float value;
  std::int32_t id;
};
Maximum find_maximum(std::span<const float> logits);

// sum of e^((logit - maximum) * scale)
double sum_of_exponentials(std::span<const float> logits, float maximum, float scale);

// The first id at which the running sum of e^((logit - maximum) * scale) exceeds u times its total; the last id with a
// positive term if rounding leaves it short; -1 if there is none. chunk_sums: scratch.
std::int32_t find_by_share(std::span<const float> logits, float maximum, float scale, double u,
                           std::vector<double>& chunk_sums);

// The ids whose logit is at least `threshold`, ascending.
void find_above(std::span<const float> logits, float threshold, std::vector<std::int32_t>& out);

// Sets the logits of tokens that are not in the set to minus infinity; ids past the mask's end are not in it.
void apply_mask(std::span<float> logits, std::span<const std::uint32_t> mask);

}  // namespace quire
