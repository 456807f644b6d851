#include "core/sampling/softmax.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace quire {

namespace {

constexpr std::size_t kChunk = 256;  // a constant length lets the compiler use vector units at -O2
constexpr std::size_t kLanes = 8;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

using Chunk = std::array<float, kChunk>;

// The terms of one chunk; what lies past the end is 0, and NaN is too.
void exponentials(std::span<const float> logits, std::size_t begin, float maximum, float scale, Chunk& out) {
  const std::size_t length = std::min(kChunk, logits.size() - begin);
  std::copy_n(logits.begin() + static_cast<std::ptrdiff_t>(begin), length, out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(length), out.end(), kMinusInfinity);
  for (std::size_t i = 0; i < kChunk; ++i) {
    const float x = (out[i] - maximum) * scale;
    out[i] = exp_nonpositive(x <= 0.0F ? x : kMinusInfinity);
  }
}

double sum_of(const Chunk& terms) {
  std::array<float, kLanes> lanes{};
  for (std::size_t i = 0; i < kChunk; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += terms[i + lane];
  }
  double sum = 0.0;
  for (const float lane : lanes)
    sum += static_cast<double>(lane);
  return sum;
}

}  // namespace

Maximum find_maximum(std::span<const float> logits) {
  Maximum best{kMinusInfinity, -1};
  for (std::size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const std::size_t end = std::min(begin + kChunk, logits.size());
    std::array<float, kLanes> lanes;
    lanes.fill(kMinusInfinity);
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
      }
    }
    float value = *std::max_element(lanes.begin(), lanes.end());
    for (; i < end; ++i)
      value = logits[i] > value ? logits[i] : value;
    if (value <= best.value) continue;
    const auto first = std::find(logits.begin() + static_cast<std::ptrdiff_t>(begin), logits.end(), value);
    best = {value, static_cast<std::int32_t>(first - logits.begin())};
  }
  return best;
}

double sum_of_exponentials(std::span<const float> logits, float maximum, float scale) {
  Chunk terms;
  double sum = 0.0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kChunk) {
    exponentials(logits, begin, maximum, scale, terms);
    sum += sum_of(terms);
  }
  return sum;
}

std::int32_t find_in_running_sum(std::span<const float> logits, float maximum, float scale, double target) {
  Chunk terms;
  double sum = 0.0;
  std::int32_t last = -1;
  for (std::size_t begin = 0; begin < logits.size(); begin += kChunk) {
    exponentials(logits, begin, maximum, scale, terms);
    const double chunk_sum = sum_of(terms);
    const bool crosses = sum + chunk_sum > target;
    double inner = sum;
    for (std::size_t i = 0; (crosses || chunk_sum > 0.0) && i < kChunk; ++i) {
      if (terms[i] <= 0.0F) continue;
      last = static_cast<std::int32_t>(begin + i);
      inner += static_cast<double>(terms[i]);
      if (crosses && inner > target) return last;
    }
    sum += chunk_sum;
  }
  return last;
}

}  // namespace quire
