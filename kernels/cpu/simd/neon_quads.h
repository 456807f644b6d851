// Storage of four rows of activations in an ActQuad for the arm64 levels with dot products, and reading them: row by
// row, or for SMMLA two rows as one vector. Any thread; internal linkage, one level per translation unit. Invariant:
// with SMMLA the features of two rows alternate in groups of eight, else row after row.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

// A sum of weights that are 2^kShift too large, exactly.
template <int kShift>
[[gnu::always_inline]] inline float32x4_t shifted_back(int32x4_t sum) {
  if constexpr (kShift == 0) {
    return vcvtq_f32_s32(sum);
  } else {
    return vcvtq_n_f32_s32(sum, kShift);
  }
}

#ifdef __ARM_FEATURE_DOTPROD
// Place of a group of four features of a row.
struct NeonQuadPlace {
  int vector;  // index of sixteen bytes
  int lane;    // index of four bytes within it
};
constexpr NeonQuadPlace place_in_quad(int row, int group) {
#ifdef __ARM_FEATURE_MATMUL_INT8
  return {row / 2 * 4 + group / 2, row % 2 * 2 + group % 2};
#else
  return {row * 2 + group / 4, group % 4};
#endif
}

[[gnu::always_inline]] inline void put_in_quad(const ActBlock& block, int row, ActQuad& quad) {
#ifdef __ARM_FEATURE_MATMUL_INT8
  for (int eight = 0; eight < 4; ++eight)
    __builtin_memcpy(quad.quants + 64 * (row / 2) + 16 * eight + 8 * (row % 2), block.quants + 8 * eight, 8);
#else
  __builtin_memcpy(quad.quants + kQuantBlock * row, block.quants, kQuantBlock);
#endif
  quad.scale[row] = block.scale;
  quad.total[row] = block.total;
  for (int i = 0; i < 5; ++i)
    quad.start[i][row] = block.start[i];
}

// Four rows one by one.
struct NeonQuadRows {
  const ActQuad* quad;

  float32x4_t scale(int row) const { return vdupq_n_f32(vld1q_f32(quad->scale)[row]); }
  float32x4_t total(int row) const { return vdupq_n_f32(vld1q_f32(quad->total)[row]); }
  float32x4_t start(int row, int i) const { return vdupq_n_f32(static_cast<float>(quad->start[i][row])); }
  std::int32_t start_value(int row, DotStart start) const {
    const std::int32_t value = quad->start[start.index][row];
    return start.shift >= 0 ? value * (1 << start.shift) : value >> -start.shift;
  }
};

#ifdef __ARM_FEATURE_MATMUL_INT8
// Rows 0 and 1, then 2 and 3: each value twice, as the sums of two columns lie.
struct NeonQuadPairs {
  const ActQuad* quad;

  float32x4_t scale(int pair) const { return doubled(vld1q_f32(quad->scale), pair); }
  float32x4_t total(int pair) const { return doubled(vld1q_f32(quad->total), pair); }
  float32x4_t start(int pair, int i) const { return doubled(vcvtq_f32_s32(vld1q_s32(quad->start[i])), pair); }

 private:
  static float32x4_t doubled(float32x4_t of, int pair) { return pair == 0 ? vzip1q_f32(of, of) : vzip2q_f32(of, of); }
};

// A pair of rows that lie apart, or a single row as both of a pair.
template <int kRows>
struct NeonRowPair {
  static_assert(kRows <= 2);
  const ActBlock* blocks;

  float32x4_t scale(int) const { return both(blocks[0].scale, blocks[kRows - 1].scale); }
  float32x4_t total(int) const { return both(blocks[0].total, blocks[kRows - 1].total); }
  float32x4_t start(int, int i) const {
    return both(static_cast<float>(blocks[0].start[i]), static_cast<float>(blocks[kRows - 1].start[i]));
  }

 private:
  static float32x4_t both(float first, float second) { return vcombine_f32(vdup_n_f32(first), vdup_n_f32(second)); }
};
#endif
#endif

}  // namespace
}  // namespace quire
