// Rounding 32 activations to int8. Any thread. Included by an ISA level's file; internal linkage.
// Invariant: a block depends on its own values alone, and every level makes the same one.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

using Columns = Simd::Columns;

void quantize_block(const float* x, ActBlock& out) {
  using F = typename Simd::F;
  constexpr int kParts = kQuantBlock / Simd::kLanes;
  F part[kParts];
  F largest = Simd::zero();
  for (int i = 0; i < kParts; ++i) {
    part[i] = Simd::load(x + i * Simd::kLanes);
    largest = Simd::max(largest, Simd::abs(part[i]));
  }
  const float bound = Simd::reduce_max(largest);
  const float inverse = bound > 1e-30f ? 127.0f / bound : 0.0f;  // below, 127 / bound could overflow
  F half[2] = {Simd::zero(), Simd::zero()};
  for (int i = 0; i < kParts; ++i) {
    F quants = Simd::round(Simd::mul(part[i], Simd::set1(inverse)));
    quants = Simd::min(Simd::max(quants, Simd::set1(-127.0f)), Simd::set1(127.0f));  // a NaN becomes -127
    Simd::store_i8(out.quants + i * Simd::kLanes, quants);
    half[2 * i / kParts] = Simd::add(half[2 * i / kParts], quants);
  }
  // Sums of small integers are exact in f32.
  const int low = static_cast<int>(Simd::reduce_add(half[0]));
  const int high = static_cast<int>(Simd::reduce_add(half[1]));
  const int sum = low + high;
  out.scale = bound / 127.0f;
  out.total = out.scale * static_cast<float>(sum);
  out.start[0] = -8 * sum;
  out.start[1] = -16 * sum;
  out.start[2] = -128 * sum;
  out.start[3] = -32 * low;
  out.start[4] = -32 * high;
}

}  // namespace
}  // namespace quire
