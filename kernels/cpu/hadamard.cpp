#include "kernels/cpu/rows/graph_math.h"

#include <bit>
#include <cmath>

namespace quire {
namespace {

constexpr std::int64_t kFirst = 8;  // features that are rotated in registers

void rotate_first(const float* x, float* out) {
  float at[kFirst];
  for (std::int64_t i = 0; i < kFirst; i += 2) {
    at[i] = x[i] + x[i + 1];
    at[i + 1] = x[i] - x[i + 1];
  }
  float next[kFirst];
  for (std::int64_t i = 0; i < kFirst; i += 4) {
    for (std::int64_t j = i; j < i + 2; ++j) {
      next[j] = at[j] + at[j + 2];
      next[j + 2] = at[j] - at[j + 2];
    }
  }
  for (std::int64_t i = 0; i < 4; ++i) {
    out[i] = next[i] + next[i + 4];
    out[i + 4] = next[i] - next[i + 4];
  }
}

// size: a power of two from kFirst on.
void rotate_block(const float* x, std::int64_t size, float* out) {
  for (std::int64_t i = 0; i < size; i += kFirst)
    rotate_first(x + i, out + i);
  for (std::int64_t half = kFirst; half < size; half *= 2) {
    for (std::int64_t first = 0; first < size; first += 2 * half) {
      float* low = out + first;
      float* high = low + half;
      for (std::int64_t i = 0; i < half; i += kFirst) {
        for (std::int64_t j = i; j < i + kFirst; ++j) {
          const float a = low[j];
          const float b = high[j];
          low[j] = a + b;
          high[j] = a - b;
        }
      }
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  for (std::int64_t i = 0; i < size; ++i)
    out[i] *= scale;
}

}  // namespace

void rotate_head(const float* x, std::int64_t dim, float* out) {
  for (std::int64_t begin = 0; begin < dim;) {
    const auto size = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(dim - begin)));
    rotate_block(x + begin, size, out + begin);
    begin += size;
  }
}

}  // namespace quire
