// NeonDot: the integer dot product of the arm64 levels, by the instructions that the level's flags allow. Integer sums
// are exact, so all give the same bits. Any thread; internal linkage. Invariant: sixteen bytes of weights are four
// features of four columns.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

struct NeonDot {
#ifdef __ARM_FEATURE_MATMUL_INT8
  static constexpr bool kCentred8 = false;  // weights stay unsigned
#else
  static constexpr bool kCentred8 = true;
#endif
#ifdef __ARM_FEATURE_DOTPROD
  static constexpr int kGemmVecs = 2;
#else
  static constexpr int kGemmVecs = 1;  // sums of pairs take the registers of the second
#endif

  template <int kBits, int kBegin, int kEnd, int kPanels, int kRows, class W>
  [[gnu::always_inline]] static void dot(const W& weights, const ActBlock* x, DotStart start,
                                         float32x4_t (*out)[kPanels]) {
    int32x4_t sum[kRows][kPanels];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p)
        sum[r][p] = start.index < 0 ? vdupq_n_s32(0) : vdupq_n_s32(start_value(x[r], start));
    }
#ifdef __ARM_FEATURE_DOTPROD
#pragma GCC unroll 2
    for (int g = kBegin; g < kEnd; g += 4) {
      int8x16_t activations[kRows];  // of four groups
      for (int r = 0; r < kRows; ++r)
        activations[r] = vld1q_s8(x[r].quants + 4 * g);
      add_group<kBits, 0, kPanels, kRows>(weights, g, activations, sum);
      add_group<kBits, 1, kPanels, kRows>(weights, g, activations, sum);
      add_group<kBits, 2, kPanels, kRows>(weights, g, activations, sum);
      add_group<kBits, 3, kPanels, kRows>(weights, g, activations, sum);
    }
#else
    for (int p = 0; p < kPanels; ++p) {
      int32x4_t pairs[kRows][2] = {};  // sums of two features: of columns 0 and 1, of columns 2 and 3
      add_products<kBits, kBegin, kEnd, kRows>([&](int g) { return weights(p, g); }, x, pairs);
      for (int r = 0; r < kRows; ++r)
        sum[r][p] = vaddq_s32(sum[r][p], vpaddq_s32(pairs[r][0], pairs[r][1]));
    }
#endif
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p)
        out[r][p] = vcvtq_f32_s32(sum[r][p]);
    }
  }

  // What int8_rate measures: one step of the dot product above.
#ifdef __ARM_FEATURE_DOTPROD
  static constexpr int kRateBytes = 16;
#else
  static constexpr int kRateBytes = 8;
#endif
  static int32x4_t bytes_of(int value) {
    return vdupq_n_s32(value);
  }
  static int32x4_t multiply_bytes(int32x4_t sum, int32x4_t a, int32x4_t b) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
    return vusdotq_s32(sum, vreinterpretq_u8_s32(a), vreinterpretq_s8_s32(b));
#elif defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
#else
    return vpadalq_s16(sum, vmull_high_s8(vreinterpretq_s8_s32(veorq_s32(a, sum)), vreinterpretq_s8_s32(b)));
#endif
  }

 private:
  // Quants below 128 are the same signed; those of eight bits have their 128 subtracted.
  template <int kBits>
  [[gnu::always_inline]] static int8x16_t as_signed(uint8x16_t quants) {
    return vreinterpretq_s8_u8(kBits == 8 ? veorq_u8(quants, vdupq_n_u8(0x80)) : quants);
  }

#ifdef __ARM_FEATURE_DOTPROD
  template <int kBits, int kLane, int kPanels, int kRows, class W>
  [[gnu::always_inline]] static void add_group(const W& weights, int g, const int8x16_t* x, int32x4_t (*sum)[kPanels]) {
    for (int p = 0; p < kPanels; ++p) {
#ifdef __ARM_FEATURE_MATMUL_INT8
      const uint8x16_t w = weights(p, g + kLane);
      for (int r = 0; r < kRows; ++r)
        sum[r][p] = vusdotq_laneq_s32(sum[r][p], w, x[r], kLane);
#else
      const int8x16_t w = as_signed<kBits>(weights(p, g + kLane));
      for (int r = 0; r < kRows; ++r)
        sum[r][p] = vdotq_laneq_s32(sum[r][p], w, x[r], kLane);
#endif
    }
  }
#else
  template <int kBits, int kBegin, int kEnd, int kRows, class W>
  [[gnu::always_inline]] static void add_products(const W& weights, const ActBlock* x, int32x4_t (*pairs)[2]) {
    // Products fit 16 bits this many times over.
    constexpr int kMost = 32767 / ((kBits == 8 ? 128 : (1 << kBits) - 1) * 127);
    constexpr int kTimes = kMost < kEnd - kBegin ? kMost : kEnd - kBegin;
    static_assert((kEnd - kBegin) % kTimes == 0);
#pragma GCC unroll 4
    for (int begin = kBegin; begin < kEnd; begin += kTimes) {
      int16x8_t low[kRows];
      int16x8_t high[kRows];
#pragma GCC unroll 8
      for (int g = begin; g < begin + kTimes; ++g) {
        const int8x16_t w = as_signed<kBits>(weights(g));
        for (int r = 0; r < kRows; ++r) {
          const int8x16_t four = four_of(x[r].quants + 4 * g);
          low[r] = g == begin ? vmull_s8(vget_low_s8(w), vget_low_s8(four))
                              : vmlal_s8(low[r], vget_low_s8(w), vget_low_s8(four));
          high[r] = g == begin ? vmull_high_s8(w, four) : vmlal_high_s8(high[r], w, four);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        pairs[r][0] = vpadalq_s16(pairs[r][0], low[r]);
        pairs[r][1] = vpadalq_s16(pairs[r][1], high[r]);
      }
    }
  }
  [[gnu::always_inline]] static int8x16_t four_of(const std::int8_t* x) {
    std::int32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
  }
#endif
};

}  // namespace
}  // namespace quire
