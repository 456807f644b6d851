// The SIMD wrapper of AVX-512 with VNNI: sixteen lanes. Any thread.
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
  static constexpr int kLanes = 16;
  static constexpr bool kCentred8 = false;
  static constexpr bool kSignedCodes = false;
  static constexpr bool kQuads = false;
  static constexpr int kGemmRows = 4;
  static constexpr int kGemmPanels = 2;
  static constexpr int kGemmVecs = 1;
  static constexpr int kSinglePanels = 4;
  static constexpr int kFloatRows = 8;
  static constexpr int kFloatPanels = 2;
  static constexpr int kFloatTilePanels = 4;
  static constexpr int kValueVecs = 2;
  static constexpr int kScoreVecs = 2;

  using F = __m512;
  using B = __m512i;
  using I = __m512i;        // 32 bits a lane; see simd_scalar.h
  using Codes = __m512i;    // 16 bits twice a lane
  using Weights = __m512i;  // Codes equal in all lanes

  static __mmask16 first_lanes(std::int64_t n) {
    return n >= kLanes ? static_cast<__mmask16>(0xffff) : n <= 0 ? __mmask16{0} : static_cast<__mmask16>((1u << n) - 1);
  }

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static void store_past_caches(float* p, F a) { _mm512_stream_ps(p, a); }
  static F load_partial(const float* p, std::int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
  static void store_partial(float* p, F a, std::int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a); }
  static __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static F load_f16(const std::uint16_t* p) { return _mm512_cvtph_ps(load256(p)); }
  static F load_bf16(const std::uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(p)), 16));
  }
  static F load_i8(const std::int8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(p))); }
  static F load_u8(const std::uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load128(p))); }
  static void store256(void* p, __m256i a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }
  static F load_half_of_e8m0(const std::uint8_t* p) {
    const __m512i exponent = _mm512_cvtepu8_epi32(_mm_subs_epu8(load128(p), _mm_set1_epi8(1)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
  }
  static F load_small_e4m3(const std::uint8_t* p) {
    const __m512i magnitude = _mm512_and_si512(_mm512_cvtepu8_epi32(load128(p)), _mm512_set1_epi32(0x7f));
    return _mm512_castsi512_ps(_mm512_slli_epi32(magnitude, 20));
  }
  // The sign reaches the two top bits, one of which is the exponent's.
  static void load_both_e4m3(const std::uint8_t* p, F* out) {
    const __m512i wide = _mm512_slli_epi16(_mm512_cvtepi8_epi16(load256(p)), 7);
    const __m512i half = _mm512_and_si512(wide, _mm512_set1_epi16(static_cast<short>(0xbf80)));
    out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
    out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
  }
  static F load_low_nibbles(const std::uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_cvtepu8_epi32(load128(p)), _mm512_set1_epi32(15)));
  }
  static F load_high_nibbles(const std::uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_cvtepu8_epi32(load128(p)), 4));
  }
  static void load_code_pairs(const std::uint8_t* first, const std::uint8_t* second, Codes* low, Codes* high) {
    const __m128i a = load128(first);
    const __m128i b = load128(second);
    const __m512i both = _mm512_cvtepu8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b)));
    *low = _mm512_and_si512(both, _mm512_set1_epi16(15));
    *high = _mm512_srli_epi16(both, 4);
  }
  static Weights load_weights(const std::int16_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  static I add_pairs(I sum, Codes codes, Weights weights) { return _mm512_dpwssd_epi32(sum, codes, weights); }
  static I no_ints() { return _mm512_setzero_si512(); }
  static I load_ints(const float* p) { return _mm512_castps_si512(_mm512_loadu_ps(p)); }
  static void store_ints(float* p, I a) { _mm512_storeu_ps(p, _mm512_castsi512_ps(a)); }
  static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  static void store_i16(std::int16_t* p, F a) { store256(p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(a))); }
  static void store_f16(std::uint16_t* p, F a) {
    store256(p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store_bf16(std::uint16_t* p, F a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    store256(p, _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet)));
  }
  static void load_bf16_pairs(const void* p, F* out) {
    const __m512i pairs = _mm512_loadu_si512(p);
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    out[1] = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
#ifdef __AVX512BF16__
  static void store_bf16_pairs(void* p, F even, F odd) {
    const __m512i halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
#ifdef __AVX512VBMI__  // permutes in one micro-operation; words need two
    const __m512i lane = _mm512_slli_epi32(_mm512_and_si512(iota_pairs(), _mm512_set1_epi32(0xff)), 1);
    const __m512i twice = _mm512_or_si512(lane, _mm512_slli_epi32(lane, 8));
    const __m512i index =
        _mm512_add_epi32(_mm512_or_si512(twice, _mm512_slli_epi32(twice, 16)), _mm512_set1_epi32(0x21200100));
    _mm512_storeu_si512(p, _mm512_permutexvar_epi8(index, halves));
#else
    const __m512i index = _mm512_add_epi32(_mm512_set1_epi32(0x00100000), iota_pairs());
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(index, halves));
#endif
  }
  // i in both halves of dword i.
  static __m512i iota_pairs() {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_or_si512(lane, _mm512_slli_epi32(lane, 16));
  }
#else
  // Finite values only.
  static void store_bf16_pairs(void* p, F even, F odd) {
    const __m512i low = _mm512_srli_epi32(round_to_bf16(even), 16);
    const __m512i high = round_to_bf16(odd);
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    _mm512_storeu_si512(p, _mm512_ternarylogic_epi32(low, high, mask, 0xf8));  // low | (high & mask)
  }
  static __m512i round_to_bf16(F a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  }
#endif
  static void store_exact_pairs(void* p, F even, F odd) {
    _mm512_storeu_si512(p, _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16), _mm512_castps_si512(odd)));
  }
  static void store_bf16_both(void* p, F first, F second) {
#ifdef __AVX512BF16__
    _mm512_storeu_si512(p, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
#else
    auto* halves = static_cast<std::uint16_t*>(p);
    store_bf16(halves, first);
    store_bf16(halves + kLanes, second);
#endif
  }
  static F nearest_bf16(F a) {
    const __m512i moved = _mm512_add_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(0x8000));
    return _mm512_castsi512_ps(_mm512_and_si512(moved, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void store_i8(std::int8_t* p, F a) {
    const __m512i rounded = _mm512_max_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(-127));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(rounded));
  }
  static F add(F a, F b) {
    return _mm512_add_ps(a, b);
  }
  static F sub(F a, F b) {
    return _mm512_sub_ps(a, b);
  }
  static F mul(F a, F b) {
    return _mm512_mul_ps(a, b);
  }
  static F div(F a, F b) {
    return _mm512_div_ps(a, b);
  }
  static F max(F a, F b) {
    return _mm512_max_ps(a, b);
  }
  static F min(F a, F b) {
    return _mm512_min_ps(a, b);
  }
  static F abs(F a) {
    return _mm512_abs_ps(a);
  }
  static F fma(F a, F b, F c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static F fnma(F a, F b, F c) {
    return _mm512_fnmadd_ps(a, b, c);
  }
  static F round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F pow2(F n) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
  }
  static F scale_pow2(F a, F n) {
    return _mm512_scalef_ps(a, n);
  }
  static F keep_first(F a, std::int64_t n, float fill) {
    return _mm512_mask_blend_ps(first_lanes(n), set1(fill), a);
  }
  static F zero_below(F a, F test, float limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(test, set1(limit), _CMP_GE_OQ), a);
  }
  static float reduce_add(F a) {
    return _mm512_reduce_add_ps(a);
  }
  static float reduce_max(F a) {
    return _mm512_reduce_max_ps(a);
  }
  static F swap_pairs(F a) {
    return _mm512_permute_ps(a, 0xb1);
  }
  static F load_doubled(const float* p) {
    const __m512 half = _mm512_castps256_ps512(_mm256_loadu_ps(p));
    const __m512i index = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_ps(index, half);
  }
  static F negate_even(F a) {
    return _mm512_mask_sub_ps(a, 0x5555, zero(), a);
  }

  static B load_bytes(const void* p) {
    return _mm512_loadu_si512(p);
  }
  template <int kByte>
  static F byte_of_four(B a) {
    const __m512i moved = kByte == 0 ? a : _mm512_srli_epi32(a, 8 * kByte);
    return _mm512_cvtepi32_ps(kByte == 3 ? moved : _mm512_and_si512(moved, _mm512_set1_epi32(0xff)));
  }
  static B low_nibbles(B a) {
    return _mm512_and_si512(a, _mm512_set1_epi8(0xf));
  }
  static B high_nibbles(B a) {
    return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(0xf));
  }
  template <int kMask>
  [[gnu::always_inline]] static B take_bits(B plane, int shift) {
    return _mm512_and_si512(_mm512_srli_epi16(plane, static_cast<unsigned>(shift)), _mm512_set1_epi8(kMask));
  }
  static B lookup(B a, const std::uint8_t* table) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load128(table)), a);
  }
  // Shifts by 16 bits cross bytes, but never into the bits that the mask keeps.
  template <int kMask>
  [[gnu::always_inline]] static B merge_bits(B a, B plane, int shift) {
    const B moved = shift >= 0 ? _mm512_slli_epi16(plane, static_cast<unsigned>(shift))
                               : _mm512_srli_epi16(plane, static_cast<unsigned>(-shift));
    return _mm512_ternarylogic_epi32(a, moved, _mm512_set1_epi8(kMask), 0xf8);  // a | (moved & mask)
  }
  template <int kBits, int kBegin, int kEnd, int kPanels, int kRows, class W>
  [[gnu::always_inline]] static void dot(const W& weights, const ActBlock* x, DotStart start, F (*out)[kPanels]) {
    __m512i sum[kRows][kPanels];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p)
        sum[r][p] = start.index < 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(start_value(x[r], start));
    }
#pragma GCC unroll 8
    for (int g = kBegin; g < kEnd; ++g) {
      B w[kPanels];
      for (int p = 0; p < kPanels; ++p)
        w[p] = weights(p, g);
      for (int r = 0; r < kRows; ++r) {
        // A float makes the compiler broadcast from memory, not through a general register.
        float four;
        __builtin_memcpy(&four, x[r].quants + 4 * g, sizeof four);
        const __m512i activations = _mm512_castps_si512(_mm512_set1_ps(four));
        for (int p = 0; p < kPanels; ++p)
          sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], w[p], activations);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p)
        out[r][p] = _mm512_cvtepi32_ps(sum[r][p]);
    }
  }
};

}  // namespace
}  // namespace quire
