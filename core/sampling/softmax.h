// Exponentials and their sums over a vocabulary. Any thread.
// Invariant: the order of additions depends on the length alone, so that the same logits always give the same bits.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace quire {

// e^x for x <= 0, to 2 units in the last place; 0 below -87. Branch-free, so that loops over it run on vector units.
inline float exp_nonpositive(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
  const float clamped = x < -87.0F ? -87.0F : x;
  const float shifted = clamped * kLog2E + kRound;
  const float power = shifted - kRound;
  const float r = (clamped - power * kLn2High) - power * kLn2Low;
  float series = 1.9875691500e-4F;
  series = series * r + 1.3981999507e-3F;
  series = series * r + 8.3334519073e-3F;
  series = series * r + 4.1665795894e-2F;
  series = series * r + 1.6666665459e-1F;
  series = series * r + 5.0000001201e-1F;
  series = series * r * r + r + 1.0F;
  const auto exponent = (std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRound) + 127) << 23;
  const float result = series * std::bit_cast<float>(exponent);
  return x < -87.0F ? 0.0F : result;
}

// The largest logit and its lowest id; NaN counts as minus infinity. id -1 where nothing is above minus infinity.
struct Maximum {
  float value;
  std::int32_t id;
};
Maximum find_maximum(std::span<const float> logits);

// sum of e^((logit - maximum) * scale)
double sum_of_exponentials(std::span<const float> logits, float maximum, float scale);

// The first id at which the running sum of e^((logit - maximum) * scale) exceeds `target`; the last id with a positive
// term where rounding leaves it short.
std::int32_t find_in_running_sum(std::span<const float> logits, float maximum, float scale, double target);

}  // namespace quire
