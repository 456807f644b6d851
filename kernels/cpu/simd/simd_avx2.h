// The SIMD wrapper of AVX2 with FMA and F16C: eight lanes. Any thread.
// The same operations as simd_scalar.h describes; internal linkage, one level per translation unit.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

struct Simd {
  using Columns = Simd;  // matrix products use vectors of a panel's columns
  static constexpr int kLanes = 8;
#ifdef __AVXVNNI__
  static constexpr bool kCentred8 = false;
#else
  static constexpr bool kCentred8 = true;
#endif
  static constexpr bool kSignedCodes = false;
  static constexpr int kGemmVecs = 2;
  static constexpr bool kQuads = false;
  static constexpr int kGemmRows = 4;
  static constexpr int kGemmPanels = 1;
  static constexpr int kSinglePanels = 1;
  static constexpr int kFloatRows = 4;
  static constexpr int kFloatPanels = 1;
  static constexpr int kFloatTilePanels = 4;
  static constexpr int kValueVecs = 1;
  static constexpr int kScoreVecs = 1;

  using F = __m256;
  using B = __m256i;
  using I = __m256i;        // 32 bits a lane; see simd_scalar.h
  using Codes = __m256i;    // 16 bits twice a lane
  using Weights = __m256i;  // Codes equal in all lanes

  // Sets all bits of the lanes i < n.
  static __m256i first_lanes(std::int64_t n) {
    const int bounded = n > kLanes ? kLanes : n < 0 ? 0 : static_cast<int>(n);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(bounded), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
  }

  static F zero() {
    return _mm256_setzero_ps();
  }
  static F set1(float x) {
    return _mm256_set1_ps(x);
  }
  static F load(const float* p) {
    return _mm256_loadu_ps(p);
  }
  static void store(float* p, F a) {
    _mm256_storeu_ps(p, a);
  }
  static void store_past_caches(float* p, F a) {
    _mm256_stream_ps(p, a);
  }
  static F load_partial(const float* p, std::int64_t n) {
    return _mm256_maskload_ps(p, first_lanes(n));
  }
  static void store_partial(float* p, F a, std::int64_t n) {
    _mm256_maskstore_ps(p, first_lanes(n), a);
  }
  static __m128i load128(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
  static __m128i load64(const void* p) {
    return _mm_loadl_epi64(static_cast<const __m128i*>(p));
  }
  static void store128(void* p, __m128i a) {
    _mm_storeu_si128(static_cast<__m128i*>(p), a);
  }
  static F load_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(load128(p));
  }
  static F load_bf16(const std::uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
  }
  static F load_i8(const std::int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load64(p)));
  }
  static F load_u8(const std::uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load64(p)));
  }
  static F load_half_of_e8m0(const std::uint8_t* p) {
    const __m256i exponent = _mm256_cvtepu8_epi32(_mm_subs_epu8(load64(p), _mm_set1_epi8(1)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }
  static F load_small_e4m3(const std::uint8_t* p) {
    const __m256i magnitude = _mm256_and_si256(_mm256_cvtepu8_epi32(load64(p)), _mm256_set1_epi32(0x7f));
    return _mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 20));
  }
  // The sign reaches the two top bits, one of which is the exponent's.
  static void load_both_e4m3(const std::uint8_t* p, F* out) {
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load128(p)), 7);
    const __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<short>(0xbf80)));
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
  }
  static F load_low_nibbles(const std::uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_cvtepu8_epi32(load64(p)), _mm256_set1_epi32(15)));
  }
  static F load_high_nibbles(const std::uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_cvtepu8_epi32(load64(p)), 4));
  }
  static void load_code_pairs(const std::uint8_t* first, const std::uint8_t* second, Codes* low, Codes* high) {
    const __m256i both = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(load64(first), load64(second)));
    *low = _mm256_and_si256(both, _mm256_set1_epi16(15));
    *high = _mm256_srli_epi16(both, 4);
  }
  static Weights load_weights(const std::int16_t* p) {
    return four(p);
  }
  static I add_pairs(I sum, Codes codes, Weights weights) {
#ifdef __AVXVNNI__
    return _mm256_dpwssd_avx_epi32(sum, codes, weights);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(codes, weights));
#endif
  }
  static I no_ints() {
    return _mm256_setzero_si256();
  }
  static I load_ints(const float* p) {
    return _mm256_castps_si256(_mm256_loadu_ps(p));
  }
  static void store_ints(float* p, I a) {
    _mm256_storeu_ps(p, _mm256_castsi256_ps(a));
  }
  static F to_float(I a) {
    return _mm256_cvtepi32_ps(a);
  }
  static void store_i16(std::int16_t* p, F a) {
    const __m256i rounded = _mm256_cvtps_epi32(a);
    store128(p, _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
  }
  static void store_f16(std::uint16_t* p, F a) {
    store128(p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store_bf16(std::uint16_t* p, F a) {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i out = _mm256_blendv_epi8(rounded, quiet, nan);
    store128(p, _mm_packus_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1)));
  }
  static void load_bf16_pairs(const void* p, F* out) {
    const __m256i pairs = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    out[1] = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void store_i8(std::int8_t* p, F a) {
    const __m256i rounded = _mm256_max_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(-127));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  static F add(F a, F b) {
    return _mm256_add_ps(a, b);
  }
  static F sub(F a, F b) {
    return _mm256_sub_ps(a, b);
  }
  static F mul(F a, F b) {
    return _mm256_mul_ps(a, b);
  }
  static F div(F a, F b) {
    return _mm256_div_ps(a, b);
  }
  static F max(F a, F b) {
    return _mm256_max_ps(a, b);
  }
  static F min(F a, F b) {
    return _mm256_min_ps(a, b);
  }
  static F abs(F a) {
    return _mm256_andnot_ps(set1(-0.0f), a);
  }
  static F fma(F a, F b, F c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static F fnma(F a, F b, F c) {
    return _mm256_fnmadd_ps(a, b, c);
  }
  static F round(F a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F pow2(F n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }
  static F scale_pow2(F a, F n) {
    return mul(a, pow2(n));
  }
  static F keep_first(F a, std::int64_t n, float fill) {
    return _mm256_blendv_ps(set1(fill), a, _mm256_castsi256_ps(first_lanes(n)));
  }
  static F zero_below(F a, F test, float limit) {
    return _mm256_and_ps(_mm256_cmp_ps(test, set1(limit), _CMP_GE_OQ), a);
  }
  static float reduce_add(F a) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static float reduce_max(F a) {
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
  }
  static F swap_pairs(F a) {
    return _mm256_permute_ps(a, 0xb1);
  }
  static F load_doubled(const float* p) {
    const __m256 half = _mm256_castps128_ps256(_mm_loadu_ps(p));
    return _mm256_permutevar8x32_ps(half, _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0));
  }
  static F negate_even(F a) {
    return _mm256_xor_ps(a, _mm256_set_ps(0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f));
  }

  static B load_bytes(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static B low_nibbles(B a) {
    return _mm256_and_si256(a, _mm256_set1_epi8(0xf));
  }
  static B high_nibbles(B a) {
    return _mm256_and_si256(_mm256_srli_epi16(a, 4), _mm256_set1_epi8(0xf));
  }
  template <int kMask>
  [[gnu::always_inline]] static B take_bits(B plane, int shift) {
    return _mm256_and_si256(_mm256_srli_epi16(plane, shift), _mm256_set1_epi8(kMask));
  }
  static B lookup(B a, const std::uint8_t* table) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(table)), a);
  }
  // Shifts by 16 bits cross bytes, but never into the bits that the mask keeps.
  template <int kMask>
  [[gnu::always_inline]] static B merge_bits(B a, B plane, int shift) {
    const B moved = shift >= 0 ? _mm256_slli_epi16(plane, shift) : _mm256_srli_epi16(plane, -shift);
    return _mm256_or_si256(a, _mm256_and_si256(moved, _mm256_set1_epi8(kMask)));
  }
  template <int kBits, int kBegin, int kEnd, int kPanels, int kRows, class W>
  [[gnu::always_inline]] static void dot(const W& weights, const ActBlock* x, DotStart start, F (*out)[kPanels]) {
    __m256i total[kPanels][kRows];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p)
        total[p][r] = start.index < 0 ? _mm256_setzero_si256() : _mm256_set1_epi32(start_value(x[r], start));
    }
#ifdef __AVXVNNI__
#pragma GCC unroll 8
    for (int g = kBegin; g < kEnd; ++g) {
      for (int r = 0; r < kRows; ++r) {
        const __m256i activations = four(x[r].quants + 4 * g);
        for (int p = 0; p < kPanels; ++p)
          total[p][r] = _mm256_dpbusd_avx_epi32(total[p][r], weights(p, g), activations);
      }
    }
#else
    if constexpr (kBits == 8) {
      dot_signed<kPanels, kRows>(weights, x, total);
    } else {
      dot_narrow<kBits, kBegin, kEnd, kPanels, kRows>(weights, x, total);
    }
#endif
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p)
        out[r][p] = _mm256_cvtepi32_ps(total[p][r]);
    }
  }

 private:
  // Four bytes in all lanes; as a float, so that the compiler broadcasts from memory and not by way of a general
  // register.
  static __m256i four(const void* x) {
    float bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm256_castps_si256(_mm256_set1_ps(bits));
  }
#ifndef __AVXVNNI__
  // Keeps the order of a loop's additions: reordered, their operands fill more registers than there are.
  static void in_order(__m256i& sum) {
    __asm__("" : "+x"(sum));
  }
  template <int kBits, int kBegin, int kEnd, int kPanels, int kRows, class W>
  [[gnu::always_inline]] static void dot_narrow(const W& weights, const ActBlock* x, __m256i (*total)[kRows]) {
    // Products of pairs fit 16 bits this many times over: 2 * (2^bits - 1) * 127 each.
    constexpr int kPairs = 32767 / (2 * ((1 << kBits) - 1) * 127);
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int begin = kBegin; begin < kEnd; begin += kPairs) {
      __m256i pairs[kPanels][kRows];
      constexpr int kMost = kPairs < kEnd - kBegin ? kPairs : kEnd - kBegin;
#pragma GCC unroll 8
      for (int i = 0; i < kMost; ++i) {
        const int g = begin + i;
        __m256i w[kPanels];
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p)
          w[p] = weights(p, g);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const __m256i activations = four(x[r].quants + 4 * g);
#pragma GCC unroll 4
          for (int p = 0; p < kPanels; ++p) {
            const __m256i products = _mm256_maddubs_epi16(w[p], activations);
            pairs[p][r] = i == 0 ? products : _mm256_add_epi16(pairs[p][r], products);
            in_order(pairs[p][r]);
          }
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          total[p][r] = _mm256_add_epi32(total[p][r], _mm256_madd_epi16(pairs[p][r], ones));
          in_order(total[p][r]);
        }
      }
    }
  }
  // Codes of eight bits, of which 128 is the zero: pairs of their products would saturate, |w| times x with w's sign
  // cannot.
  template <int kPanels, int kRows, class W>
  [[gnu::always_inline]] static void dot_signed(const W& weights, const ActBlock* x, __m256i (*total)[kRows]) {
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      __m256i centred[kPanels];
      __m256i magnitude[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        centred[p] = _mm256_xor_si256(weights(p, g), _mm256_set1_epi8(-128));
        magnitude[p] = _mm256_abs_epi8(centred[p]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i activations = four(x[r].quants + 4 * g);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          const __m256i pairs = _mm256_maddubs_epi16(magnitude[p], _mm256_sign_epi8(activations, centred[p]));
          total[p][r] = _mm256_add_epi32(total[p][r], _mm256_madd_epi16(pairs, ones));
          in_order(total[p][r]);
        }
      }
    }
  }
#endif
};

}  // namespace
}  // namespace quire
