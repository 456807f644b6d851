// NeonTile: integer dot products of four rows of activations with eight columns of weights that lie in memory, for the
// arm64 levels with dot products: SDOT, or SMMLA where there is i8mm. In assembly, because the compiler loads all
// weights before the first product and has then no registers for the sums. Any thread; internal linkage, one level per
// translation unit. Invariant: weights are signed bytes; the sums are exact.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

#ifdef __ARM_FEATURE_DOTPROD
// The same for one row and the sixteen columns of a panel of bytes, groups of four features 64 bytes apart.
class NeonLine {
 public:
  [[gnu::always_inline]] static void dot(const std::byte* weights, const ActBlock* x, float32x4_t (*out)[4]) {
    const int8x16_t low = vld1q_s8(x->quants);
    const int8x16_t high = vld1q_s8(x->quants + 16);
    int32x4_t s0 = {}, s1 = {}, s2 = {}, s3 = {};
    add<0, 0>(weights, low, s0, s1, s2, s3);
    add<64, 1>(weights, low, s0, s1, s2, s3);
    add<128, 2>(weights, low, s0, s1, s2, s3);
    add<192, 3>(weights, low, s0, s1, s2, s3);
    add<256, 0>(weights, high, s0, s1, s2, s3);
    add<320, 1>(weights, high, s0, s1, s2, s3);
    add<384, 2>(weights, high, s0, s1, s2, s3);
    add<448, 3>(weights, high, s0, s1, s2, s3);
    out[0][0] = vcvtq_f32_s32(s0);
    out[0][1] = vcvtq_f32_s32(s1);
    out[0][2] = vcvtq_f32_s32(s2);
    out[0][3] = vcvtq_f32_s32(s3);
  }

 private:
  template <int kOffset, int kLane>
  [[gnu::always_inline]] static void add(const std::byte* weights, const int8x16_t& x, int32x4_t& s0, int32x4_t& s1,
                                         int32x4_t& s2, int32x4_t& s3) {
    int8x16_t w0;
    int8x16_t w1;
    asm volatile(
        "ldp %q[w0], %q[w1], [%[from], %[offset]]\n\t"
        "sdot %[s0].4s, %[w0].16b, %[x].4b[%[lane]]\n\t"
        "sdot %[s1].4s, %[w1].16b, %[x].4b[%[lane]]\n\t"
        "ldp %q[w0], %q[w1], [%[from], %[next]]\n\t"
        "sdot %[s2].4s, %[w0].16b, %[x].4b[%[lane]]\n\t"
        "sdot %[s3].4s, %[w1].16b, %[x].4b[%[lane]]"
        : [w0] "=&w"(w0), [w1] "=&w"(w1), [s0] "+w"(s0), [s1] "+w"(s1), [s2] "+w"(s2), [s3] "+w"(s3)
        : [x] "w"(x), [from] "r"(weights), [offset] "i"(kOffset), [next] "i"(kOffset + 32), [lane] "i"(kLane));
  }
};

// Features [4 * kBegin, 4 * kEnd) of a block of 32; groups of four features lie kGroupBytes apart.
template <int kBegin, int kEnd, int kGroupBytes>
class NeonTile {
 public:
  // The sums as f32, [row][four columns].
  [[gnu::always_inline]] static void dot(const std::byte* weights, const ActBlock* x, float32x4_t (*out)[2]) {
    Rows low;
    Rows high;
    asm volatile("" ::: "memory");  // what was unpacked lies there
    load(x, low, high);
    Sums sums;
    clear(sums);
    if constexpr (kBegin == 0) add_half<0>(weights, low, sums);
    if constexpr (kEnd == 8) add_half<4>(weights, high, sums);
    asm volatile("" ::: "memory");  // the scales, loaded earlier, would take the sums' registers
    finish(sums, out);
  }

 private:
  // With SDOT rows a to d times columns 0 to 3 and 4 to 7. With SMMLA pairs of rows times pairs of columns: a of rows 0
  // and 1 with columns 0 to 3, b the same with columns 4 to 7, c and d of rows 2 and 3.
  struct Sums {
    int32x4_t a0, a1, b0, b1, c0, c1, d0, d1;
  };
  struct Rows {  // sixteen features of each
    int8x16_t a, b, c, d;
  };

  [[gnu::always_inline]] static void clear(Sums& s) {
    asm volatile(
        "movi %0.4s, #0\n\tmovi %1.4s, #0\n\tmovi %2.4s, #0\n\tmovi %3.4s, #0\n\t"
        "movi %4.4s, #0\n\tmovi %5.4s, #0\n\tmovi %6.4s, #0\n\tmovi %7.4s, #0"
        : "=w"(s.a0), "=w"(s.a1), "=w"(s.b0), "=w"(s.b1), "=w"(s.c0), "=w"(s.c1), "=w"(s.d0), "=w"(s.d1));
  }

  template <int kRow>
  [[gnu::always_inline]] static void load_row(const ActBlock* x, int8x16_t& low, int8x16_t& high) {
    if constexpr (kEnd - kBegin == 8) {
      asm volatile("ldp %q0, %q1, [%2, %3]" : "=w"(low), "=w"(high) : "r"(x), "i"(kRow * sizeof(ActBlock)));
    } else {
      (kBegin == 0 ? low : high) = vld1q_s8(x[kRow].quants + 4 * kBegin);
    }
  }
  [[gnu::always_inline]] static void load(const ActBlock* x, Rows& low, Rows& high) {
    load_row<0>(x, low.a, high.a);
    load_row<1>(x, low.b, high.b);
    load_row<2>(x, low.c, high.c);
    load_row<3>(x, low.d, high.d);
  }

#ifdef __ARM_FEATURE_MATMUL_INT8
  // Sixteen features: groups kGroup to kGroup + 3, ordered for SMMLA two by two.
  template <int kGroup>
  [[gnu::always_inline]] static void add_half(const std::byte* weights, const Rows& x, Sums& s) {
    const auto first = [](int8x16_t a, int8x16_t b) {
      return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
    };
    const auto second = [](int8x16_t a, int8x16_t b) {
      return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
    };
    add<kGroup * kGroupBytes>(weights, first(x.a, x.b), first(x.c, x.d), s);
    add<(kGroup + 2) * kGroupBytes>(weights, second(x.a, x.b), second(x.c, x.d), s);
  }
  template <int kOffset>
  [[gnu::always_inline]] static void add(const std::byte* weights, int8x16_t ab, int8x16_t cd, Sums& s) {
    int8x16_t w0;
    int8x16_t w1;
    asm volatile(
        "ldp %q[w0], %q[w1], [%[from], %[offset]]\n\t"
        "smmla %[a0].4s, %[ab].16b, %[w0].16b\n\t"
        "smmla %[c0].4s, %[cd].16b, %[w0].16b\n\t"
        "smmla %[a1].4s, %[ab].16b, %[w1].16b\n\t"
        "smmla %[c1].4s, %[cd].16b, %[w1].16b\n\t"
        "ldp %q[w0], %q[w1], [%[from], %[next]]\n\t"
        "smmla %[b0].4s, %[ab].16b, %[w0].16b\n\t"
        "smmla %[d0].4s, %[cd].16b, %[w0].16b\n\t"
        "smmla %[b1].4s, %[ab].16b, %[w1].16b\n\t"
        "smmla %[d1].4s, %[cd].16b, %[w1].16b"
        : [w0] "=&w"(w0), [w1] "=&w"(w1), [a0] "+w"(s.a0), [a1] "+w"(s.a1), [b0] "+w"(s.b0), [b1] "+w"(s.b1),
          [c0] "+w"(s.c0), [c1] "+w"(s.c1), [d0] "+w"(s.d0), [d1] "+w"(s.d1)
        : [ab] "w"(ab), [cd] "w"(cd), [from] "r"(weights), [offset] "i"(kOffset), [next] "i"(kOffset + kGroupBytes));
  }
  [[gnu::always_inline]] static void finish(const Sums& s, float32x4_t (*out)[2]) {
    finish_pair(s.a0, s.a1, out[0][0], out[1][0]);
    finish_pair(s.b0, s.b1, out[0][1], out[1][1]);
    finish_pair(s.c0, s.c1, out[2][0], out[3][0]);
    finish_pair(s.d0, s.d1, out[2][1], out[3][1]);
  }
  // Columns 0 and 1 of two rows, then columns 2 and 3.
  [[gnu::always_inline]] static void finish_pair(int32x4_t left, int32x4_t right, float32x4_t& upper,
                                                 float32x4_t& lower) {
    const int64x2_t a = vreinterpretq_s64_s32(left);
    const int64x2_t b = vreinterpretq_s64_s32(right);
    upper = vcvtq_f32_s32(vreinterpretq_s32_s64(vzip1q_s64(a, b)));
    lower = vcvtq_f32_s32(vreinterpretq_s32_s64(vzip2q_s64(a, b)));
  }
#else
  template <int kGroup>
  [[gnu::always_inline]] static void add_half(const std::byte* weights, const Rows& x, Sums& s) {
    add<kGroup * kGroupBytes, 0>(weights, x, s);
    add<(kGroup + 1) * kGroupBytes, 1>(weights, x, s);
    add<(kGroup + 2) * kGroupBytes, 2>(weights, x, s);
    add<(kGroup + 3) * kGroupBytes, 3>(weights, x, s);
  }
  template <int kOffset, int kLane>
  [[gnu::always_inline]] static void add(const std::byte* weights, const Rows& x, Sums& s) {
    int8x16_t w0;
    int8x16_t w1;
    asm volatile(
        "ldp %q[w0], %q[w1], [%[from], %[offset]]\n\t"
        "sdot %[a0].4s, %[w0].16b, %[xa].4b[%[lane]]\n\t"
        "sdot %[b0].4s, %[w0].16b, %[xb].4b[%[lane]]\n\t"
        "sdot %[c0].4s, %[w0].16b, %[xc].4b[%[lane]]\n\t"
        "sdot %[d0].4s, %[w0].16b, %[xd].4b[%[lane]]\n\t"
        "sdot %[a1].4s, %[w1].16b, %[xa].4b[%[lane]]\n\t"
        "sdot %[b1].4s, %[w1].16b, %[xb].4b[%[lane]]\n\t"
        "sdot %[c1].4s, %[w1].16b, %[xc].4b[%[lane]]\n\t"
        "sdot %[d1].4s, %[w1].16b, %[xd].4b[%[lane]]"
        : [w0] "=&w"(w0), [w1] "=&w"(w1), [a0] "+w"(s.a0), [b0] "+w"(s.b0), [c0] "+w"(s.c0), [d0] "+w"(s.d0),
          [a1] "+w"(s.a1), [b1] "+w"(s.b1), [c1] "+w"(s.c1), [d1] "+w"(s.d1)
        : [xa] "w"(x.a), [xb] "w"(x.b), [xc] "w"(x.c), [xd] "w"(x.d), [from] "r"(weights), [offset] "i"(kOffset),
          [lane] "i"(kLane));
  }
  [[gnu::always_inline]] static void finish(const Sums& s, float32x4_t (*out)[2]) {
    out[0][0] = vcvtq_f32_s32(s.a0);
    out[0][1] = vcvtq_f32_s32(s.a1);
    out[1][0] = vcvtq_f32_s32(s.b0);
    out[1][1] = vcvtq_f32_s32(s.b1);
    out[2][0] = vcvtq_f32_s32(s.c0);
    out[2][1] = vcvtq_f32_s32(s.c1);
    out[3][0] = vcvtq_f32_s32(s.d0);
    out[3][1] = vcvtq_f32_s32(s.d1);
  }
#endif
};
#endif

}  // namespace
}  // namespace quire
