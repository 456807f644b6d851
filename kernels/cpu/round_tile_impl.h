// Activations as bf16, for tiles and for dot products. Any thread.
// Included by an ISA level's file behind its Simd wrapper; everything here has internal linkage.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

constexpr int kHalvesRun = 32;  // values of one row that lie together

// Rounds a tile of rows to bf16: [depth / 32][rows][32], the depth padded with zeros.
void round_tile(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t depth, std::uint16_t* out) {
  for (std::int64_t k = 0; k < padded_depth(depth); k += Simd::kLanes) {
    std::uint16_t* block = out + k / kHalvesRun * rows * kHalvesRun + k % kHalvesRun;
    for (std::int64_t r = 0; r < rows; ++r) {
      Simd::store_bf16(block + r * kHalvesRun, Simd::load_partial(x + r * stride + k, depth - k));
    }
  }
}

}  // namespace
}  // namespace quire
