// NeonDot: the integer dot product of the arm64 levels, by the instructions that the level's flags allow. Integer sums
// are exact, so all give the same bits. Any thread; internal linkage. Invariant: sixteen bytes of weights are four
// features of four columns.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd/neon_tile.h"

namespace quire {
namespace {

struct NeonDot {
  static constexpr bool kCentred8 = true;
  static constexpr bool kSignedCodes = true;
#ifdef __ARM_FEATURE_DOTPROD
  static constexpr int kGemmVecs = 2;
  static constexpr bool kQuads = true;
  using QuadRows = NeonQuadRows;
  static void put(const ActBlock& block, int row, ActQuad& quad) {
    put_in_quad(block, row, quad);
  }
#else
  static constexpr int kGemmVecs = 1;  // sums of pairs take a second vector's registers
  static constexpr bool kQuads = false;
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
  static constexpr bool kOrdersGroups = true;
  using QuadPairs = NeonQuadPairs;
  template <int kRows>
  using RowPair = NeonRowPair<kRows>;
  // Two groups of four features of four columns become eight features of columns 0 and 1 and of columns 2 and 3.
  static void order_groups(uint8x16_t& first, uint8x16_t& second) {
    const uint32x4_t a = vreinterpretq_u32_u8(first);
    const uint32x4_t b = vreinterpretq_u32_u8(second);
    first = vreinterpretq_u8_u32(vzip1q_u32(a, b));
    second = vreinterpretq_u8_u32(vzip2q_u32(a, b));
  }
  // Four columns of each of two rows become columns 0 and 1 of both and columns 2 and 3 of both, or back.
  static void trade_halves(float32x4_t& first, float32x4_t& second) {
    const float64x2_t a = vreinterpretq_f64_f32(first);
    const float64x2_t b = vreinterpretq_f64_f32(second);
    first = vreinterpretq_f32_f64(vzip1q_f64(a, b));
    second = vreinterpretq_f32_f64(vzip2q_f64(a, b));
  }
#endif

  template <int kBits, int kBegin, int kEnd, int kPanels, int kRows, class W>
  [[gnu::always_inline]] static void dot(const W& weights, const ActBlock* x, DotStart start,
                                         float32x4_t (*out)[kPanels]) {
#ifdef __ARM_FEATURE_DOTPROD
    if constexpr (requires { weights.line(0); }) return NeonLine::dot(weights.line(0), x, out);
#endif
    int32x4_t sum[kRows][kPanels];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p)
        sum[r][p] = start.index < 0 ? vdupq_n_s32(0) : vdupq_n_s32(start_value(x[r], start));
    }
#ifdef __ARM_FEATURE_DOTPROD
    int8x16_t activations[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      activations[r][0] = vld1q_s8(x[r].quants);
      activations[r][1] = vld1q_s8(x[r].quants + 16);
    }
    const auto add = [&]<int... kOffsets>(std::integer_sequence<int, kOffsets...>) {
      (add_group<kBegin + kOffsets, kPanels, kRows>(weights, activations, sum), ...);
    };
    add(std::make_integer_sequence<int, kEnd - kBegin>());
#else
    for (int p = 0; p < kPanels; ++p) {
      int32x4_t pairs[kRows][2];  // sums of two features: of columns 0 and 1, of columns 2 and 3
      add_products<kBits, kBegin, kEnd, kRows>([&](int g) { return weights(p, g); }, x, pairs);
      for (int r = 0; r < kRows; ++r) {
        const int32x4_t all = vpaddq_s32(pairs[r][0], pairs[r][1]);
        sum[r][p] = start.index < 0 ? all : vaddq_s32(sum[r][p], all);
        asm volatile("" : "+w"(sum[r][p]));  // one vector after the other, or registers run out
      }
    }
#endif
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p)
        out[r][p] = shifted_back<W::kShift>(sum[r][p]);
    }
  }

#ifdef __ARM_FEATURE_DOTPROD
  // Four rows of a quad: of all weights of a panel at once, or of a tile.
  template <int kBits, int kBegin, int kEnd, int kPanels, int kRows, class W>
  [[gnu::always_inline]] static void dot(const W& weights, const NeonQuadRows& x, DotStart start,
                                         float32x4_t (*out)[kPanels]) {
    static_assert(kRows == 4);
    if constexpr (requires { weights.address(0, 0); }) {
      return NeonTile<kBegin, kEnd, W>::dot(weights.address(0, 0), x.quad, out);
    }
    int32x4_t sum[4][kPanels];
    for (int r = 0; r < 4; ++r) {
      for (int p = 0; p < kPanels; ++p)
        sum[r][p] = vdupq_n_s32(start.index < 0 ? 0 : x.start_value(r, start));
    }
    int8x16_t activations[8];
    for (int i = 0; i < 8; ++i)
      activations[i] = vld1q_s8(x.quad->quants + 16 * i);
    const auto add = [&]<int... kOffsets>(std::integer_sequence<int, kOffsets...>) {
      (add_group_of_quad<kBegin + kOffsets, kPanels>(weights, activations, sum), ...);
    };
    add(std::make_integer_sequence<int, kEnd - kBegin>());
    for (int r = 0; r < 4; ++r) {
      for (int p = 0; p < kPanels; ++p)
        out[r][p] = shifted_back<W::kShift>(sum[r][p]);
    }
  }
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
  template <int kBits, int kBegin, int kEnd, int kSums, int kPairs, class W>
  [[gnu::always_inline]] static void dot(const W& weights, const NeonQuadPairs& x, DotStart, float32x4_t (*out)[4]) {
    static_assert(kSums == 4 && kPairs == 2);
    NeonTile<kBegin, kEnd, W>::dot(weights.address(0, 0), x.quad, out);
  }
  template <int kBits, int kBegin, int kEnd, int kSums, int kPairs, int kRows, class W>
  [[gnu::always_inline]] static void dot(const W& weights, const NeonRowPair<kRows>& x, DotStart,
                                         float32x4_t (*out)[4]) {
    static_assert(kSums == 4 && kPairs == 1);
    int32x4_t sum[4] = {};
    for (int g = kBegin; g < kEnd; g += 2) {
      const int8x8_t last = vld1_s8(x.blocks[kRows - 1].quants + 4 * g);
      const int8x16_t pair = vcombine_s8(kRows == 1 ? last : vld1_s8(x.blocks[0].quants + 4 * g), last);
      for (int i = 0; i < 4; ++i)
        sum[i] = vmmlaq_s32(sum[i], pair, vreinterpretq_s8_u8(weights(i % 2, g + i / 2)));
    }
    for (int i = 0; i < 4; ++i)
      out[0][i] = shifted_back<W::kShift>(sum[i]);
  }
#endif

  // A step of the dot product above, which int8_rate measures.
#ifdef __ARM_FEATURE_DOTPROD
  static constexpr int kRateBytes = 16;
#else
  static constexpr int kRateBytes = 8;
#endif
  static int32x4_t bytes_of(int value) {
    return vdupq_n_s32(value);
  }
  static int32x4_t multiply_bytes(int32x4_t sum, int32x4_t a, int32x4_t b) {
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
#else
    return vpadalq_s16(sum, vmull_high_s8(vreinterpretq_s8_s32(veorq_s32(a, sum)), vreinterpretq_s8_s32(b)));
#endif
  }

 private:
#ifdef __ARM_FEATURE_DOTPROD
  template <int kGroup, int kPanels, int kRows, class W>
  [[gnu::always_inline]] static void add_group(const W& weights, const int8x16_t (*x)[2], int32x4_t (*sum)[kPanels]) {
    int8x16_t w[kPanels];
    for (int p = 0; p < kPanels; ++p)
      w[p] = vreinterpretq_s8_u8(weights(p, kGroup));
    for (int p = 0; p < kPanels; ++p) {
      for (int r = 0; r < kRows; ++r)
        sum[r][p] = vdotq_laneq_s32(sum[r][p], w[p], x[r][kGroup / 4], kGroup % 4);
    }
  }
  template <int kGroup, int kPanels, class W>
  [[gnu::always_inline]] static void add_group_of_quad(const W& weights, const int8x16_t (&x)[8],
                                                       int32x4_t (*sum)[kPanels]) {
    int8x16_t w[kPanels];
    for (int p = 0; p < kPanels; ++p)
      w[p] = vreinterpretq_s8_u8(weights(p, kGroup));
    const auto row = [&]<int kRow>(std::integral_constant<int, kRow>) {
      constexpr NeonQuadPlace kPlace = place_in_quad(kRow, kGroup);
      for (int p = 0; p < kPanels; ++p)
        sum[kRow][p] = vdotq_laneq_s32(sum[kRow][p], w[p], x[kPlace.vector], kPlace.lane);
    };
    row(std::integral_constant<int, 0>());
    row(std::integral_constant<int, 1>());
    row(std::integral_constant<int, 2>());
    row(std::integral_constant<int, 3>());
  }
#else
  template <int kBits, int kBegin, int kEnd, int kRows, class W>
  [[gnu::always_inline]] static void add_products(const W& weights, const ActBlock* x, int32x4_t (*pairs)[2]) {
    // Products fit 16 bits this many times over.
    constexpr int kMost = 32767 / ((kBits == 8 ? 128 : (1 << kBits) - 1) * 127);
    constexpr int kTimes = kMost < kEnd - kBegin ? kMost : kEnd - kBegin;
    static_assert((kEnd - kBegin) % kTimes == 0);
    int32x4_t four[kRows];  // groups of four features: four bytes of each row
#pragma GCC unroll 8
    for (int begin = kBegin; begin < kEnd; begin += kTimes) {
      int16x8_t low[kRows];
      int16x8_t high[kRows];
#pragma GCC unroll 8
      for (int g = begin; g < begin + kTimes; ++g) {
        const int8x16_t w = vreinterpretq_s8_u8(weights(g));
        for (int r = 0; r < kRows; ++r) {
          if (g % 4 == 0) four[r] = vld1q_s32(reinterpret_cast<const std::int32_t*>(x[r].quants) + g);
          const int8x16_t same = vreinterpretq_s8_s32(vdupq_laneq_s32(four[r], g % 4));
          low[r] = g == begin ? vmull_s8(vget_low_s8(w), vget_low_s8(same))
                              : vmlal_s8(low[r], vget_low_s8(w), vget_low_s8(same));
          high[r] = g == begin ? vmull_high_s8(w, same) : vmlal_high_s8(high[r], w, same);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        pairs[r][0] = begin == kBegin ? vpaddlq_s16(low[r]) : vpadalq_s16(pairs[r][0], low[r]);
        pairs[r][1] = begin == kBegin ? vpaddlq_s16(high[r]) : vpadalq_s16(pairs[r][1], high[r]);
      }
    }
  }
#endif
};

}  // namespace
}  // namespace quire
