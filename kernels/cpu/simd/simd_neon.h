// The SIMD wrappers of NEON: `Simd` of sixteen lanes, four registers of four, whose sums across lanes have the order of
// AVX-512; and `NeonColumns` of four lanes for matrix products, where sixteen would leave no register for a second row.
// The operations are those that simd_scalar.h describes, with the bits of simd_avx512.h. Any thread; internal linkage,
// one level per translation unit: neon, dotprod and i8mm differ in simd_neon_dot.h alone.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd/simd_neon_dot.h"

namespace quire {
namespace {

// The first n lanes of p, zeros behind them; and the first n lanes of a into p.
template <class Vector>
auto load_first(const float* p, std::int64_t n) {
  if (n >= Vector::kLanes) return Vector::load(p);
  float lanes[Vector::kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i)
    lanes[i] = p[i];
  return Vector::load(lanes);
}

template <class Vector>
void store_first(float* p, typename Vector::F a, std::int64_t n) {
  if (n >= Vector::kLanes) return Vector::store(p, a);
  float lanes[Vector::kLanes];
  Vector::store(lanes, a);
  for (std::int64_t i = 0; i < n; ++i)
    p[i] = lanes[i];
}

struct NeonColumns : NeonDot {
  static constexpr int kLanes = 4;
  static constexpr int kGemmRows = 4;
  static constexpr int kGemmPanels = 1;
  static constexpr int kSinglePanels = 1;
  static constexpr int kFloatRows = 4;
  static constexpr int kFloatPanels = 1;
  static constexpr int kFloatTilePanels = 2;

  using F = float32x4_t;
  using B = uint8x16_t;

  static F zero() { return vdupq_n_f32(0.0f); }
  static F set1(float x) { return vdupq_n_f32(x); }
  static F load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, F a) { vst1q_f32(p, a); }
  static void store_past_caches(float* p, F a) { vst1q_f32(p, a); }
  static F load_partial(const float* p, std::int64_t n) { return load_first<NeonColumns>(p, n); }
  static void store_partial(float* p, F a, std::int64_t n) { store_first<NeonColumns>(p, a, n); }
  static F from_f16(uint16x4_t a) { return vcvt_f32_f16(vreinterpret_f16_u16(a)); }
  static F load_f16(const std::uint16_t* p) { return from_f16(vld1_u16(p)); }
  static void load_f16_pair(const std::uint16_t* p, F* out) {
    const float16x8_t both = vreinterpretq_f16_u16(vld1q_u16(p));
    out[0] = vcvt_f32_f16(vget_low_f16(both));
    out[1] = vcvt_high_f32_f16(both);
  }
  static F load_bf16(const std::uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static uint8x8_t load_four(const void* p) {
    std::uint32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    return vreinterpret_u8_u32(vdup_n_u32(four));
  }
  static uint32x4_t widen(uint8x8_t a) { return vmovl_u16(vget_low_u16(vmovl_u8(a))); }
  static F load_i8(const std::int8_t* p) {
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(load_four(p))))));
  }
  static F load_u8(const std::uint8_t* p) { return vcvtq_f32_u32(widen(load_four(p))); }
  // Sixteen of them.
  static void load_u8_panel(const std::uint8_t* p, F* out) {
    const uint8x16_t all = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(all));
    const uint16x8_t high = vmovl_high_u8(all);
    out[0] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(low)));
    out[1] = vcvtq_f32_u32(vmovl_high_u16(low));
    out[2] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(high)));
    out[3] = vcvtq_f32_u32(vmovl_high_u16(high));
  }
  static F load_half_of_e8m0(const std::uint8_t* p) {
    const uint32x4_t exponent = vqsubq_u32(widen(load_four(p)), vdupq_n_u32(1));
    return vreinterpretq_f32_u32(vshlq_n_u32(exponent, 23));
  }
  static F load_small_e4m3(const std::uint8_t* p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(widen(vand_u8(load_four(p), vdup_n_u8(0x7f))), 20));
  }
  // The sign reaches the two top bits, one of which is the exponent's.
  static void load_both_e4m3(const std::uint8_t* p, F* out) {
    const uint16x8_t wide = vreinterpretq_u16_s16(vshll_n_s8(vreinterpret_s8_u8(vld1_u8(p)), 7));
    const uint16x8_t half = vandq_u16(wide, vdupq_n_u16(0xbf80));
    out[0] = from_f16(vget_low_u16(half));
    out[1] = from_f16(vget_high_u16(half));
  }
  static F load_low_nibbles(const std::uint8_t* p) {
    return vcvtq_f32_u32(widen(vand_u8(load_four(p), vdup_n_u8(15))));
  }
  static F load_high_nibbles(const std::uint8_t* p) { return vcvtq_f32_u32(widen(vshr_n_u8(load_four(p), 4))); }
  static void load_bf16_pairs(const void* p, F* out) {
    const uint32x4_t pairs = vreinterpretq_u32_u8(vld1q_u8(static_cast<const std::uint8_t*>(p)));
    out[0] = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    out[1] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
  }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }

  static B load_bytes(const void* p) { return vld1q_u8(static_cast<const std::uint8_t*>(p)); }
  static B low_nibbles(B a) { return vandq_u8(a, vdupq_n_u8(0xf)); }
  static B high_nibbles(B a) { return vshrq_n_u8(a, 4); }
#ifdef __ARM_FEATURE_DOTPROD
  static constexpr int kNibbleShift = 4;
  static B signed_low_nibbles(B a) {
    return vshlq_n_u8(a, 4);
  }
  static B signed_high_nibbles(B a) {
    return vandq_u8(a, vdupq_n_u8(0xf0));
  }
#else
  static constexpr int kNibbleShift = 0;  // sums of products would overflow sixteen bits
  static B signed_low_nibbles(B a) {
    return signed_high_nibbles(vshlq_n_u8(a, 4));
  }
  static B signed_high_nibbles(B a) {
    return vreinterpretq_u8_s8(vshrq_n_s8(vreinterpretq_s8_u8(a), 4));
  }
#endif
  // Uses the compiler's operators, which become shifts by a constant if possible.
  template <int kMask>
  [[gnu::always_inline]] static B take_bits(B plane, int shift) {
    return (plane >> static_cast<std::uint8_t>(shift)) & vdupq_n_u8(kMask);
  }
  static B lookup(B a, const std::uint8_t* table) {
    return vqtbl1q_u8(vld1q_u8(table), a);
  }
  template <int kMask>
  [[gnu::always_inline]] static B merge_bits(B a, B plane, int shift) {
    const B moved = shift >= 0 ? plane << static_cast<std::uint8_t>(shift) : plane >> static_cast<std::uint8_t>(-shift);
    return a | (moved & vdupq_n_u8(kMask));
  }
};

struct Simd {
  static constexpr int kLanes = 16;
  static constexpr int kValueVecs = 1;
  static constexpr int kScoreVecs = 1;

  using Columns = NeonColumns;
  using Quarter = float32x4_t;
  struct F {
    Quarter of[4];
  };
  struct I {  // 32 bits a lane; see simd_scalar.h
    int32x4_t of[4];
  };
  struct Codes {
    int16x8_t first[2];
    int16x8_t second[2];
  };
  using Weights = int16x4_t;  // two of them, twice

  template <class Op>
  [[gnu::always_inline]] static F each(const Op& op) {
    return {{op(0), op(1), op(2), op(3)}};
  }
  template <class Op>
  [[gnu::always_inline]] static void for_each(const Op& op) {
    op(0), op(1), op(2), op(3);
  }
  // Sets all bits of the lanes i < n.
  static uint32x4_t first_lanes(std::int64_t n, int quarter) {
    const std::int64_t bounded = n > kLanes ? kLanes : n < 0 ? 0 : n;
    constexpr std::uint32_t kNumbers[4] = {0, 1, 2, 3};
    return vcltq_s32(vreinterpretq_s32_u32(vld1q_u32(kNumbers)),
                     vdupq_n_s32(static_cast<std::int32_t>(bounded) - 4 * quarter));
  }

  static F zero() { return set1(0.0f); }
  static F set1(float x) {
    const Quarter all = vdupq_n_f32(x);
    return {{all, all, all, all}};
  }
  static F load(const float* p) {
    return each([&](int i) { return vld1q_f32(p + 4 * i); });
  }
  static void store(float* p, F a) {
    for_each([&](int i) { vst1q_f32(p + 4 * i, a.of[i]); });
  }
  static F load_partial(const float* p, std::int64_t n) { return load_first<Simd>(p, n); }
  static void store_partial(float* p, F a, std::int64_t n) { store_first<Simd>(p, a, n); }
  static F load_f16(const std::uint16_t* p) {
    return each([&](int i) { return Columns::load_f16(p + 4 * i); });
  }
  static F load_bf16(const std::uint16_t* p) {
    return each([&](int i) { return Columns::load_bf16(p + 4 * i); });
  }
  static F load_i8(const std::int8_t* p) {
    const int8x16_t all = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(all));
    const int16x8_t high = vmovl_high_s8(all);
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
  }
  static void load_code_pairs(const std::uint8_t* first, const std::uint8_t* second, Codes* low, Codes* high) {
    const auto widen = [](uint8x16_t a, int16x8_t* out) {
      out[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(a)));
      out[1] = vreinterpretq_s16_u16(vmovl_high_u8(a));
    };
    const uint8x16_t a = vld1q_u8(first);
    const uint8x16_t b = vld1q_u8(second);
    widen(Columns::low_nibbles(a), low->first);
    widen(Columns::low_nibbles(b), low->second);
    widen(Columns::high_nibbles(a), high->first);
    widen(Columns::high_nibbles(b), high->second);
  }
  static Weights load_weights(const std::int16_t* p) {
    std::uint32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return vreinterpret_s16_u32(vdup_n_u32(pair));
  }
  [[gnu::always_inline]] static I add_pairs(I sum, const Codes& codes, Weights weights) {
    for (int half = 0; half < 2; ++half) {
      int32x4_t& low = sum.of[2 * half];
      int32x4_t& high = sum.of[2 * half + 1];
      low = vmlal_lane_s16(low, vget_low_s16(codes.first[half]), weights, 0);
      low = vmlal_lane_s16(low, vget_low_s16(codes.second[half]), weights, 1);
      high = vmlal_high_lane_s16(high, codes.first[half], weights, 0);
      high = vmlal_high_lane_s16(high, codes.second[half], weights, 1);
    }
    return sum;
  }
  static I no_ints() {
    const int32x4_t none = vdupq_n_s32(0);
    return {{none, none, none, none}};
  }
  static I load_ints(const float* p) {
    const auto quarter = [&](int i) { return vreinterpretq_s32_f32(vld1q_f32(p + 4 * i)); };
    return {{quarter(0), quarter(1), quarter(2), quarter(3)}};
  }
  static void store_ints(float* p, I a) {
    for_each([&](int i) { vst1q_f32(p + 4 * i, vreinterpretq_f32_s32(a.of[i])); });
  }
  static F to_float(I a) {
    return each([&](int i) { return vcvtq_f32_s32(a.of[i]); });
  }
  static void store_i16(std::int16_t* p, F a) {
    const auto rounded = [&](int i) { return vqmovn_s32(vcvtnq_s32_f32(a.of[i])); };
    vst1q_s16(p, vcombine_s16(rounded(0), rounded(1)));
    vst1q_s16(p + 8, vcombine_s16(rounded(2), rounded(3)));
  }
  static void store_f16(std::uint16_t* p, F a) {
    for_each([&](int i) { vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.of[i]))); });
  }
  static void store_bf16(std::uint16_t* p, F a) {
    for_each([&](int i) {
      const uint32x4_t bits = vreinterpretq_u32_f32(a.of[i]);
      const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
      const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
      const uint32x4_t quiet = vorrq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(0x40));
      const uint32x4_t number = vceqq_f32(a.of[i], a.of[i]);
      vst1_u16(p + 4 * i, vmovn_u32(vbslq_u32(number, rounded, quiet)));
    });
  }
  static void store_i8(std::int8_t* p, F a) {
    const auto rounded = [&](int i) { return vmaxq_s32(vcvtnq_s32_f32(a.of[i]), vdupq_n_s32(-127)); };
    const int16x8_t low = vcombine_s16(vqmovn_s32(rounded(0)), vqmovn_s32(rounded(1)));
    const int16x8_t high = vcombine_s16(vqmovn_s32(rounded(2)), vqmovn_s32(rounded(3)));
    vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
  }
  static F add(F a, F b) {
    return each([&](int i) { return vaddq_f32(a.of[i], b.of[i]); });
  }
  static F sub(F a, F b) {
    return each([&](int i) { return vsubq_f32(a.of[i], b.of[i]); });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return vmulq_f32(a.of[i], b.of[i]); });
  }
  static F div(F a, F b) {
    return each([&](int i) { return vdivq_f32(a.of[i], b.of[i]); });
  }
  // Returns b if either is a NaN, like the other levels: NEON's own maximum differs.
  static F max(F a, F b) {
    return each([&](int i) { return vbslq_f32(vcgtq_f32(a.of[i], b.of[i]), a.of[i], b.of[i]); });
  }
  static F min(F a, F b) {
    return each([&](int i) { return vbslq_f32(vcltq_f32(a.of[i], b.of[i]), a.of[i], b.of[i]); });
  }
  static F abs(F a) {
    return each([&](int i) { return vabsq_f32(a.of[i]); });
  }
  static F fma(F a, F b, F c) {
    return each([&](int i) { return vfmaq_f32(c.of[i], a.of[i], b.of[i]); });
  }
  static F fnma(F a, F b, F c) {
    return each([&](int i) { return vfmsq_f32(c.of[i], a.of[i], b.of[i]); });
  }
  static F round(F a) {
    return each([&](int i) { return vrndnq_f32(a.of[i]); });
  }
  static F pow2(F n) {
    return each([&](int i) {
      const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n.of[i]), vdupq_n_s32(127));
      return vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
    });
  }
  static F scale_pow2(F a, F n) { return mul(a, pow2(n)); }
  static F keep_first(F a, std::int64_t n, float fill) {
    return each([&](int i) { return vbslq_f32(first_lanes(n, i), a.of[i], vdupq_n_f32(fill)); });
  }
  static F zero_below(F a, F test, float limit) {
    return each([&](int i) {
      const uint32x4_t kept = vcgeq_f32(test.of[i], vdupq_n_f32(limit));
      return vreinterpretq_f32_u32(vandq_u32(kept, vreinterpretq_u32_f32(a.of[i])));
    });
  }
  // Adds lanes eight apart first, then four, two and one.
  static float reduce_add(F a) {
    const Quarter sum = vaddq_f32(vaddq_f32(a.of[0], a.of[2]), vaddq_f32(a.of[1], a.of[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(sum), vget_high_f32(sum));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  static float reduce_max(F a) {
    const auto larger = [](Quarter x, Quarter y) { return vbslq_f32(vcgtq_f32(x, y), x, y); };
    const Quarter top = larger(larger(a.of[0], a.of[2]), larger(a.of[1], a.of[3]));
    const Quarter two = larger(top, vextq_f32(top, top, 2));
    return vgetq_lane_f32(larger(two, vextq_f32(two, two, 1)), 0);
  }
  static F swap_pairs(F a) {
    return each([&](int i) { return vrev64q_f32(a.of[i]); });
  }
  static F load_doubled(const float* p) {
    const Quarter low = vld1q_f32(p);
    const Quarter high = vld1q_f32(p + 4);
    return {{vzip1q_f32(low, low), vzip2q_f32(low, low), vzip1q_f32(high, high), vzip2q_f32(high, high)}};
  }
  static F negate_even(F a) {
    const uint32x4_t even = vreinterpretq_u32_u64(vdupq_n_u64(0xffffffffu));
    return each([&](int i) { return vbslq_f32(even, vsubq_f32(vdupq_n_f32(0.0f), a.of[i]), a.of[i]); });
  }
};

}  // namespace
}  // namespace quire
