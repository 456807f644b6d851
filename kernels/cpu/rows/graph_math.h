// Small functions that the graph operations share. Any thread.
#pragma once

#include <cmath>

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

}  // namespace quire
