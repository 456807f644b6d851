// Mathematics of a row that operations share: activations, and the rotation of a head. Pure functions; any thread.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"

namespace quire {

inline float* row_of(MatrixView view, std::int64_t row) {
  return view.data + row * view.stride;
}

inline float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

inline float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

// A normalised Hadamard rotation of a head's features, its own inverse. It spreads outliers over all features, which
// four-bit codes need, and preserves products of two rotated vectors. The order of operations depends on the size
// alone, so that bits are the same on every level. Over blocks of the largest powers of two that make up `dim`, a
// multiple of 8: 80 is 64 and 16. out may be x.
void rotate_head(const float* x, std::int64_t dim, float* out);

}  // namespace quire
