// NeonTile: integer dot products of four rows of activations with eight columns of weights in memory, for the arm64
// levels with dot products: SDOT, or SMMLA with i8mm. Written in assembly, because the compiler loads all weights
// before the first product and then lacks registers for the sums. Any thread; internal linkage, one level per
// translation unit. Invariant: weights are signed bytes; the sums are exact.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/neon_quads.h"

namespace quire {
namespace {

#ifdef __ARM_FEATURE_DOTPROD
// NeonTile for one row and the sixteen columns of a panel of bytes, groups of four features 64 bytes apart.
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

// Features [4 * kBegin, 4 * kEnd) of a block of 32. Weights: says how many bytes groups of four features lie apart.
template <int kBegin, int kEnd, class Weights>
class NeonTile {
  static constexpr int kGroupBytes = Weights::kGroupBytes;

 public:
#ifdef __ARM_FEATURE_MATMUL_INT8
  static constexpr int kUnits = 2;  // pairs of rows
  static constexpr int kSums = 4;   // pairs of columns
#else
  static constexpr int kUnits = 4;  // rows
  static constexpr int kSums = 2;   // four columns
#endif
  // The sums as f32.
  [[gnu::always_inline]] static void dot(const std::byte* weights, const ActQuad* x, float32x4_t (*out)[kSums]) {
    Rows low;
    Rows high;
    asm volatile("" ::: "memory");  // the unpacked values are in memory now
    load(x, low, high);
    int32x4_t sums[kUnits][kSums];
    clear(sums);
    if constexpr (kBegin == 0) add_half<0>(weights, low, sums);
    if constexpr (kEnd == 8) add_half<4>(weights, high, sums);
    asm volatile("" ::: "memory");  // the scales, loaded earlier, would take the sums' registers
    for (int u = 0; u < kUnits; ++u) {
      for (int i = 0; i < kSums; ++i)
        out[u][i] = shifted_back<Weights::kShift>(sums[u][i]);
    }
  }

 private:
  using Sums = int32x4_t[kUnits][kSums];
  // Sixteen features: of row r, or of SMMLA features 8 * (r % 2) of the pair of rows r / 2.
  struct Rows {
    int8x16_t of[4];
  };

  [[gnu::always_inline]] static void clear(Sums& s) {
    const auto at = [&](int i) -> int32x4_t& { return s[i / kSums][i % kSums]; };
    asm volatile(
        "movi %0.4s, #0\n\tmovi %1.4s, #0\n\tmovi %2.4s, #0\n\tmovi %3.4s, #0\n\t"
        "movi %4.4s, #0\n\tmovi %5.4s, #0\n\tmovi %6.4s, #0\n\tmovi %7.4s, #0"
        : "=w"(at(0)), "=w"(at(1)), "=w"(at(2)), "=w"(at(3)), "=w"(at(4)), "=w"(at(5)), "=w"(at(6)), "=w"(at(7)));
  }

  template <int kOffset>
  [[gnu::always_inline]] static void load_two(const ActQuad* x, int8x16_t& first, int8x16_t& second) {
    asm volatile("ldp %q0, %q1, [%2, %3]" : "=w"(first), "=w"(second) : "r"(x), "i"(kOffset));
  }

#ifdef __ARM_FEATURE_MATMUL_INT8
  [[gnu::always_inline]] static void load(const ActQuad* x, Rows& low, Rows& high) {
    if constexpr (kBegin == 0) {
      load_two<0>(x, low.of[0], low.of[1]);
      load_two<64>(x, low.of[2], low.of[3]);
    }
    if constexpr (kEnd == 8) {
      load_two<32>(x, high.of[0], high.of[1]);
      load_two<96>(x, high.of[2], high.of[3]);
    }
  }
  // Sixteen features: groups kGroup to kGroup + 3, ordered for SMMLA two by two.
  template <int kGroup>
  [[gnu::always_inline]] static void add_half(const std::byte* weights, const Rows& x, Sums& s) {
    add<kGroup * kGroupBytes>(weights, x.of[0], x.of[2], s);
    add<(kGroup + 2) * kGroupBytes>(weights, x.of[1], x.of[3], s);
  }
  template <int kOffset>
  [[gnu::always_inline]] static void add(const std::byte* weights, int8x16_t ab, int8x16_t cd, Sums& s) {
    int8x16_t w0;
    int8x16_t w1;
    asm volatile(
        "ldp %q[w0], %q[w1], [%[from], %[offset]]\n\t"
        "smmla %[a0].4s, %[ab].16b, %[w0].16b\n\t"
        "smmla %[b0].4s, %[cd].16b, %[w0].16b\n\t"
        "smmla %[a1].4s, %[ab].16b, %[w1].16b\n\t"
        "smmla %[b1].4s, %[cd].16b, %[w1].16b\n\t"
        "ldp %q[w0], %q[w1], [%[from], %[next]]\n\t"
        "smmla %[a2].4s, %[ab].16b, %[w0].16b\n\t"
        "smmla %[b2].4s, %[cd].16b, %[w0].16b\n\t"
        "smmla %[a3].4s, %[ab].16b, %[w1].16b\n\t"
        "smmla %[b3].4s, %[cd].16b, %[w1].16b"
        : [w0] "=&w"(w0), [w1] "=&w"(w1), [a0] "+w"(s[0][0]), [a1] "+w"(s[0][1]), [a2] "+w"(s[0][2]),
          [a3] "+w"(s[0][3]), [b0] "+w"(s[1][0]), [b1] "+w"(s[1][1]), [b2] "+w"(s[1][2]), [b3] "+w"(s[1][3])
        : [ab] "w"(ab), [cd] "w"(cd), [from] "r"(weights), [offset] "i"(kOffset), [next] "i"(kOffset + kGroupBytes));
  }
#else
  template <int kRow>
  [[gnu::always_inline]] static void load_row(const ActQuad* x, Rows& low, Rows& high) {
    if constexpr (kEnd - kBegin == 8) {
      load_two<kRow * kQuantBlock>(x, low.of[kRow], high.of[kRow]);
    } else {
      (kBegin == 0 ? low : high).of[kRow] = vld1q_s8(x->quants + kRow * kQuantBlock + 4 * kBegin);
    }
  }
  [[gnu::always_inline]] static void load(const ActQuad* x, Rows& low, Rows& high) {
    load_row<0>(x, low, high);
    load_row<1>(x, low, high);
    load_row<2>(x, low, high);
    load_row<3>(x, low, high);
  }
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
        : [w0] "=&w"(w0), [w1] "=&w"(w1), [a0] "+w"(s[0][0]), [a1] "+w"(s[0][1]), [b0] "+w"(s[1][0]),
          [b1] "+w"(s[1][1]), [c0] "+w"(s[2][0]), [c1] "+w"(s[2][1]), [d0] "+w"(s[3][0]), [d1] "+w"(s[3][1])
        : [xa] "w"(x.of[0]), [xb] "w"(x.of[1]), [xc] "w"(x.of[2]), [xd] "w"(x.of[3]), [from] "r"(weights),
          [offset] "i"(kOffset), [lane] "i"(kLane));
  }
#endif
};
#endif

}  // namespace
}  // namespace quire
