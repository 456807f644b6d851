// RMSNorm, SwiGLU, RoPE and exp over one row each. Any thread.
// Included by an ISA level's file behind its Simd wrapper; everything here has internal linkage.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

// exp(x) for x <= 88: 2^n times a degree-6 polynomial of the remainder (Taylor, |r| <= ln2 / 2). Relative error below
// 4e-7; results below 2^-126 are zero.
[[gnu::always_inline]] inline typename Simd::F exp_vector(typename Simd::F x) {
  using F = typename Simd::F;
  const F clamped = Simd::min(Simd::max(x, Simd::set1(-87.0f)), Simd::set1(88.0f));
  const F n = Simd::round(Simd::mul(clamped, Simd::set1(1.44269504f)));
  // ln 2 as a sum of two numbers, so that n * ln2 is subtracted without loss.
  F r = Simd::fnma(n, Simd::set1(0.693359375f), clamped);
  r = Simd::fnma(n, Simd::set1(-2.12194440e-4f), r);
  F p = Simd::set1(1.0f / 720.0f);
  p = Simd::fma(p, r, Simd::set1(1.0f / 120.0f));
  p = Simd::fma(p, r, Simd::set1(1.0f / 24.0f));
  p = Simd::fma(p, r, Simd::set1(1.0f / 6.0f));
  p = Simd::fma(p, r, Simd::set1(0.5f));
  p = Simd::fma(p, r, Simd::set1(1.0f));
  p = Simd::fma(p, r, Simd::set1(1.0f));
  return Simd::zero_below(Simd::mul(p, Simd::pow2(n)), x, -87.0f);
}

inline void rms_norm(const float* x, const float* weight, float eps, std::int64_t count, float* out) {
  using F = typename Simd::F;
  const std::int64_t whole = count / Simd::kLanes * Simd::kLanes;
  const std::int64_t rest = count - whole;
  F sum = Simd::zero();
  for (std::int64_t i = 0; i < whole; i += Simd::kLanes) {
    const F v = Simd::load(x + i);
    sum = Simd::fma(v, v, sum);
  }
  if (rest > 0) {
    const F v = Simd::load_partial(x + whole, rest);
    sum = Simd::fma(v, v, sum);
  }
  const float mean = Simd::reduce_add(sum) / static_cast<float>(count);
  const F scale = Simd::set1(1.0f / __builtin_sqrtf(mean + eps));
  for (std::int64_t i = 0; i < whole; i += Simd::kLanes) {
    Simd::store(out + i, Simd::mul(Simd::mul(Simd::load(x + i), scale), Simd::load(weight + i)));
  }
  if (rest > 0) {
    const F v = Simd::mul(Simd::load_partial(x + whole, rest), scale);
    Simd::store_partial(out + whole, Simd::mul(v, Simd::load_partial(weight + whole, rest)), rest);
  }
}

// silu(g) = g / (1 + exp(-g)); for g < -88 the quotient underflows to about 1e-37 and then to zero, as it should.
[[gnu::always_inline]] inline typename Simd::F silu(typename Simd::F g) {
  const typename Simd::F e = exp_vector(Simd::sub(Simd::zero(), g));
  return Simd::div(g, Simd::add(Simd::set1(1.0f), e));
}

inline void swiglu(const float* gate, const float* up, std::int64_t count, float* out) {
  std::int64_t i = 0;
  for (; i + Simd::kLanes <= count; i += Simd::kLanes) {
    Simd::store(out + i, Simd::mul(silu(Simd::load(gate + i)), Simd::load(up + i)));
  }
  if (i < count) {
    const std::int64_t rest = count - i;
    const typename Simd::F g = silu(Simd::load_partial(gate + i, rest));
    Simd::store_partial(out + i, Simd::mul(g, Simd::load_partial(up + i, rest)), rest);
  }
}

// Pairs (i, i + half).
inline void rope_half(float* head, const float* cos, const float* sin, std::int64_t half) {
  using F = typename Simd::F;
  for (std::int64_t i = 0; i < half; i += Simd::kLanes) {
    const std::int64_t n = half - i;
    const F c = Simd::load_partial(cos + i, n);
    const F s = Simd::load_partial(sin + i, n);
    const F a = Simd::load_partial(head + i, n);
    const F b = Simd::load_partial(head + half + i, n);
    Simd::store_partial(head + i, Simd::fnma(b, s, Simd::mul(a, c)), n);
    Simd::store_partial(head + half + i, Simd::fma(a, s, Simd::mul(b, c)), n);
  }
}

// Pairs (2i, 2i + 1).
inline void rope_interleaved(float* head, const float* cos, const float* sin, std::int64_t half) {
  using F = typename Simd::F;
  std::int64_t i = 0;
  for (; 2 * i + Simd::kLanes <= 2 * half; i += Simd::kLanes / 2) {
    const F x = Simd::load(head + 2 * i);
    const F c = Simd::load_doubled(cos + i);
    const F s = Simd::load_doubled(sin + i);
    Simd::store(head + 2 * i, Simd::fma(Simd::negate_even(Simd::swap_pairs(x)), s, Simd::mul(x, c)));
  }
  for (; i < half; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = a * cos[i] - b * sin[i];
    head[2 * i + 1] = a * sin[i] + b * cos[i];
  }
}

}  // namespace
}  // namespace quire
