// Elementary functions of the kernels as polynomials of our own: the same bits on a device and in the emulator, and the
// same as on the CPU levels with fused multiply-add.
#pragma once

#include "kernels/gpu/kernels/portable.h"

namespace quire::gpu {

// Rounds |x| < 2^22 half to even.
QUIRE_DEVICE float round_even(float x) {
  const float shifted = x + 12582912.0f;
  return shifted - 12582912.0f;
}

// 2^n for integral n in [-126, 127].
QUIRE_DEVICE float power_of_two(float n) {
  return float_of_bits(static_cast<std::uint32_t>(static_cast<int>(n) + 127) << 23);
}

// exp(x) for x <= 88: 2^n times a polynomial of the remainder; zero below -87.
QUIRE_DEVICE float exp_of(float x) {
  const float above = x > -87.0f ? x : -87.0f;
  const float clamped = above < 88.0f ? above : 88.0f;
  const float n = round_even(clamped * 1.44269504f);
  float r = __builtin_fmaf(-n, 0.693359375f, clamped);
  r = __builtin_fmaf(-n, -2.12194440e-4f, r);
  float p = 1.0f / 720.0f;
  p = __builtin_fmaf(p, r, 1.0f / 120.0f);
  p = __builtin_fmaf(p, r, 1.0f / 24.0f);
  p = __builtin_fmaf(p, r, 1.0f / 6.0f);
  p = __builtin_fmaf(p, r, 0.5f);
  p = __builtin_fmaf(p, r, 1.0f);
  p = __builtin_fmaf(p, r, 1.0f);
  return x >= -87.0f ? p * power_of_two(n) : 0.0f;
}

// 2^r for r in [-0.5, 0.5].
QUIRE_DEVICE float exp2_fraction(float r) {
  float p = 1.326472731e-3f;
  p = __builtin_fmaf(p, r, 9.671512991e-3f);
  p = __builtin_fmaf(p, r, 5.550733581e-2f);
  p = __builtin_fmaf(p, r, 2.402224243e-1f);
  p = __builtin_fmaf(p, r, 6.931470037e-1f);
  return __builtin_fmaf(p, r, 1.0f);
}

// 2^x for x <= 0: 2^n times a polynomial of the remainder; what lies below 2^-126 counts as 2^-126.
QUIRE_DEVICE float exp2_of(float x) {
  const float bounded = x > -126.0f ? x : -126.0f;
  const float shifted = bounded + 12582912.0f;  // n in its last bits
  const float power = exp2_fraction(bounded - (shifted - 12582912.0f));
  return float_of_bits(bits_of_float(power) + (bits_of_float(shifted) << 23));
}

QUIRE_DEVICE float silu_of(float x) {
  return x / (1.0f + exp_of(-x));
}

}  // namespace quire::gpu
