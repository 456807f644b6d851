// ScaledPairs: quants of four features times sixteen columns, a dword of bytes per column, to the two lines of a B
// tile: pairs of features as bf16, multiplied with each column's scale. Two implementations with the same bits: over
// any Simd of sixteen lanes, and with fewer instructions for AVX-512 VBMI and BF16. Any thread; internal linkage.
// Invariant: each weight is (quant - kZero) * scale, exact before it is rounded, or, where kZero is 0, quant * scale +
// offset by one fused multiply-add before that.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

#if defined(__AVX512VBMI__) && defined(__AVX512BF16__)

// Lane l of a vector holds feature l % 2 of column l / 2 (of the first eight columns, then of the others): so the
// conversion of two of them is a line as it shall be. Conversion from integers is spared where the product is exact
// whatever is added first: the quant is put into the mantissa of a power of two.
template <int kBits, int kZero>
class ScaledPairs {
 public:
  ScaledPairs(__m512 scale, __m512 offset) {
    if constexpr (kZero != 0) offset = _mm512_mul_ps(scale, _mm512_set1_ps(-(kPower + static_cast<float>(kZero))));
    const __m512i lane = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    for (int half = 0; half < 2; ++half) {
      const __m512i from = _mm512_add_epi32(lane, _mm512_set1_epi32(8 * half));
      scale_[half] = _mm512_permutexvar_ps(from, scale);
      offset_[half] = _mm512_permutexvar_ps(from, offset);
    }
  }

  void store(std::byte* out, __m512i quads) const {
    for (int line = 0; line < 2; ++line) {
      const __m512 low = weights(quads, line, 0);
      const __m512 high = weights(quads, line, 1);
      _mm512_storeu_si512(out + 64 * line, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }

 private:
  // Bits of the mantissa have the weight 2^(exponent - 23 + position): one for the quant in this byte of 128 + quant
  // or, as eight bits do not fit there, of 32768 + quant.
  static constexpr int kByte = kZero == 0 ? 0 : kBits == 8 ? 1 : 2;
  static constexpr float kPower = kBits == 8 ? 32768.0f : 128.0f;

  [[gnu::always_inline]] __m512 weights(__m512i quads, int line, int half) const {
    const __m512i column = _mm512_set_epi32(28, 28, 24, 24, 20, 20, 16, 16, 12, 12, 8, 8, 4, 4, 0, 0);
    const __m512i odd = _mm512_set_epi32(1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0);
    const __m512i from = _mm512_slli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(column, odd), _mm512_set1_epi32(32 * half + 2 * line)), 8 * kByte);
    constexpr __mmask64 kPlace = 0x1111111111111111ull << kByte;
    __m512 quants;
    if constexpr (kZero == 0) {
      quants = _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(kPlace, from, quads));
    } else {
      quants = _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(load_power(), kPlace, from, quads));
    }
    return _mm512_fmadd_ps(quants, scale_[half], offset_[half]);
  }

  // Loads from memory each time: loads have ports of their own, while copying a register would take an arithmetic one.
  [[gnu::always_inline]] static __m512i load_power() {
    alignas(64) static constexpr float kPowers[16] = {kPower, kPower, kPower, kPower, kPower, kPower, kPower, kPower,
                                                      kPower, kPower, kPower, kPower, kPower, kPower, kPower, kPower};
    __m512i out;
    asm volatile("vmovdqa64 %1, %0" : "=v"(out) : "m"(kPowers));
    return out;
  }

  __m512 scale_[2];
  __m512 offset_[2];
};

#else

template <int kBits, int kZero>
class ScaledPairs {
 public:
  using F = typename Simd::F;
  ScaledPairs(F scale, F offset)
      : scale_(scale), offset_(kZero == 0 ? offset : Simd::mul(scale, Simd::set1(-static_cast<float>(kZero)))) {}

  void store(std::byte* out, typename Simd::B quads) const {
    Simd::store_bf16_pairs(out, weights<0>(quads), weights<1>(quads));
    Simd::store_bf16_pairs(out + 64, weights<2>(quads), weights<3>(quads));
  }

 private:
  template <int kFeature>
  [[gnu::always_inline]] F weights(const typename Simd::B& quads) const {
    return Simd::fma(Simd::template byte_of_four<kFeature>(quads), scale_, offset_);
  }

  F scale_;
  F offset_;
};

#endif

}  // namespace
}  // namespace quire
