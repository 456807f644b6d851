#include "core/sampling/softmax.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>

namespace quire {

namespace {

// Four lanes: the vector width of every x86-64 and 64-bit ARM. The compilers' vector types keep the arithmetic of the
// lanes exact.
constexpr std::size_t kLanes = 4;
constexpr std::size_t kChunk = 256;
using Floats = float __attribute__((vector_size(16)));
using Ints = std::int32_t __attribute__((vector_size(16)));
constexpr float kLowest = -87.0F;  // e^x below it is no normal number

Floats all(float value) {
  return Floats{value, value, value, value};
}

Floats load(const float* from) {
  Floats lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

// Range reduction by powers of two, then a polynomial (coefficients as in Cephes' expf). NaN gives 0.
Floats exp_lanes(Floats x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
  const Ints in_range = x >= all(kLowest);
  const Floats clamped = in_range ? x : all(kLowest);
  const Floats shifted = clamped * all(1.44269504F) + all(kRound);
  const Floats power = shifted - all(kRound);
  const Floats r = (clamped - power * all(0.693359375F)) - power * all(-2.12194440e-4F);
  Floats series = all(1.9875691500e-4F);
  for (const float coefficient :
       {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F}) {
    series = series * r + all(coefficient);
  }
  series = series * r * r + r + all(1.0F);
  const std::int32_t bias = 127 - std::bit_cast<std::int32_t>(kRound);
  const Ints exponent = (std::bit_cast<Ints>(shifted) + Ints{bias, bias, bias, bias}) << 23;
  const Floats result = series * std::bit_cast<Floats>(exponent);
  return in_range ? result : all(0.0F);
}

using Chunk = std::array<float, kChunk>;

// The terms of a chunk and their sum; elements past the end are 0.
double exponentials(std::span<const float> logits, std::size_t begin, float maximum, float scale, Chunk& out) {
  const std::size_t length = std::min(kChunk, logits.size() - begin);
  std::memcpy(out.data(), logits.data() + begin, length * sizeof(float));
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(length), out.end(), kMinusInfinity);
  Floats sums = all(0.0F);
  for (std::size_t i = 0; i < kChunk; i += kLanes) {
    const Floats terms = exp_lanes((load(out.data() + i) - all(maximum)) * all(scale));
    std::memcpy(out.data() + i, &terms, sizeof terms);
    sums += terms;
  }
  return (static_cast<double>(sums[0]) + static_cast<double>(sums[1])) +
         (static_cast<double>(sums[2]) + static_cast<double>(sums[3]));
}

float chunk_maximum(std::span<const float> chunk) {
  std::array<Floats, 2> best{all(kMinusInfinity), all(kMinusInfinity)};
  std::size_t i = 0;
  for (; i + 2 * kLanes <= chunk.size(); i += 2 * kLanes) {
    for (std::size_t half = 0; half < 2; ++half) {
      const Floats values = load(chunk.data() + i + half * kLanes);
      best[half] = values > best[half] ? values : best[half];
    }
  }
  float value = kMinusInfinity;
  for (const Floats& lanes : best) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      value = std::max(value, lanes[lane]);
  }
  for (; i < chunk.size(); ++i)
    value = chunk[i] > value ? chunk[i] : value;
  return value;
}

}  // namespace

float exp_nonpositive(float x) {
  return exp_lanes(all(x))[0];
}

Maximum find_maximum(std::span<const float> logits) {
  Maximum best{kMinusInfinity, -1};
  for (std::size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const auto chunk = logits.subspan(begin, std::min(kChunk, logits.size() - begin));
    const float value = chunk_maximum(chunk);
    if (value <= best.value) continue;
    const auto first = std::find(chunk.begin(), chunk.end(), value) - chunk.begin();
    best = {value, static_cast<std::int32_t>(begin) + static_cast<std::int32_t>(first)};
  }
  return best;
}

double sum_of_exponentials(std::span<const float> logits, float maximum, float scale) {
  Chunk terms;
  double sum = 0.0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kChunk) {
    sum += exponentials(logits, begin, maximum, scale, terms);
  }
  return sum;
}

std::int32_t find_by_share(std::span<const float> logits, float maximum, float scale, double u,
                           std::vector<double>& chunk_sums) {
  Chunk terms;
  chunk_sums.clear();
  double total = 0.0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kChunk) {
    total += chunk_sums.emplace_back(exponentials(logits, begin, maximum, scale, terms));
  }
  const double target = u * total;
  std::size_t chunk = 0;
  double sum = 0.0;
  while (chunk + 1 < chunk_sums.size() && sum + chunk_sums[chunk] <= target)
    sum += chunk_sums[chunk++];
  exponentials(logits, chunk * kChunk, maximum, scale, terms);
  std::int32_t last = -1;
  for (std::size_t i = 0; i < kChunk; ++i) {
    if (terms[i] <= 0.0F) continue;
    last = static_cast<std::int32_t>(chunk * kChunk + i);
    sum += static_cast<double>(terms[i]);
    if (sum > target) break;
  }
  return last;
}

void find_above(std::span<const float> logits, float threshold, std::vector<std::int32_t>& out) {
  out.clear();
  for (std::size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const auto chunk = logits.subspan(begin, std::min(kChunk, logits.size() - begin));
    if (chunk_maximum(chunk) < threshold) continue;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      if (chunk[i] >= threshold) out.push_back(static_cast<std::int32_t>(begin + i));
    }
  }
}

void apply_mask(std::span<float> logits, std::span<const std::uint32_t> mask) {
  for (std::size_t word = 0; word * 32 < logits.size(); ++word) {
    const std::uint32_t bits = word < mask.size() ? mask[word] : 0;
    if (bits == ~std::uint32_t{0}) continue;
    const std::size_t end = std::min(word * 32 + 32, logits.size());
    for (std::size_t i = word * 32; i < end; ++i) {
      if (((bits >> (i % 32)) & 1U) == 0) logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace quire
