// Weights of four bits to bf16 by tables: a column has no more than sixteen values in a block of 32 features, which are
// computed and rounded once and then looked up. For panels whose nibbles lie by column (PanelForm::kNibblesByColumn).
// Two implementations with the same bits: over any Simd of sixteen lanes, and for AVX-512 VBMI and BF16. Any thread;
// internal linkage. Invariant: a value is the code's meaning less the zero times scale, or quant * scale + offset by
// one fused multiply-add where the zero is 0, rounded to bf16.
#pragma once

#include "kernels/cpu/products/gemm_int_impl.h"

namespace quire {
namespace {

// The values of one column. `counting`: nibble_counting; `offset` is the zero where columns have one of their own.
template <class P>
[[gnu::always_inline]] inline typename Simd::F nibble_values(typename Simd::F counting, float scale, float offset) {
  if constexpr (P::kScales == ScaleForm::kFloatZero)
    return Simd::mul(Simd::sub(counting, Simd::set1(offset)), Simd::set1(scale));
  if constexpr (P::kZero != 0) return Simd::mul(counting, Simd::set1(scale));
  return Simd::fma(counting, Simd::set1(scale), Simd::set1(offset));
}

// Values of the sixteen codes: 0 to 15 less the zero, or the table.
struct NibbleMeanings {
  alignas(64) float of[16];
};
constexpr NibbleMeanings nibble_meanings(PackedFormat format) {
  NibbleMeanings out{};
  const CodeValues values = code_values(format.table);
  for (int i = 0; i < 16; ++i)
    out.of[i] = static_cast<float>(format.table == CodeTable::kLinear ? i - format.zero : values.of[i]);
  return out;
}
template <class P>
constexpr NibbleMeanings kNibbleMeanings = nibble_meanings(P::kFormat);

template <class P>
[[gnu::always_inline]] inline typename Simd::F nibble_counting() {
  return Simd::load(kNibbleMeanings<P>.of);
}

#if defined(__AVX512VBMI__) && defined(__AVX512BF16__)

// Place of each weight byte's nibble in a quadword of nibbles, at bits 1 to 4.
[[gnu::always_inline]] inline __m512i nibble_places() {
  alignas(64) static constexpr std::uint8_t kPlaces[64] = {
      63, 63, 3,  3,  7,  7,  11, 11, 63, 63, 3,  3,  7,  7,  11, 11, 15, 15, 19, 19, 23, 23,
      27, 27, 15, 15, 19, 19, 23, 23, 27, 27, 31, 31, 35, 35, 39, 39, 43, 43, 31, 31, 35, 35,
      39, 39, 43, 43, 47, 47, 51, 51, 55, 55, 59, 59, 47, 47, 51, 51, 55, 55, 59, 59};
  return _mm512_load_si512(kPlaces);
}

// 256 bytes of nibbles to sixteen rows, one of each column, of 32 weights. One register holds the tables of two
// columns; an index into its bytes is the column, the quant and which half of the value.
template <class P>
[[gnu::always_inline]] inline void decode_nibbles(__m512 scale, __m512 offset, const std::byte* nibbles,
                                                  std::byte* out) {
  alignas(64) float scales[kPanelCols];
  alignas(64) float offsets[kPanelCols];
  _mm512_store_ps(scales, scale);
  _mm512_store_ps(offsets, offset);
  // Broadcast from memory, by the ports of loads: those of arithmetic are what limits this.
  asm("" : "+m"(scales), "+m"(offsets));
  const __m512 counting = nibble_counting<P>();
  const __m512i places = nibble_places();
  __m512i quant = _mm512_set1_epi8(0x1e);
  __m512i rest[2] = {_mm512_set1_epi16(0x0100), _mm512_set1_epi16(0x2120)};
  asm("" : "+v"(quant), "+v"(rest[0]), "+v"(rest[1]));  // made once
#pragma GCC unroll 8
  for (int column = 0; column < kPanelCols; column += 2) {
    const __m512 even = nibble_values<P>(counting, scales[column], offsets[column]);
    const __m512 odd = nibble_values<P>(counting, scales[column + 1], offsets[column + 1]);
    const __m512i tables = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
    for (int which = 0; which < 2; ++which) {
      const __m128i own = _mm_loadu_si128(reinterpret_cast<const __m128i*>(nibbles + 16 * (column + which)));
      const __m512i moved = _mm512_multishift_epi64_epi8(places, _mm512_broadcast_i32x4(own));
      const __m512i index = _mm512_ternarylogic_epi32(moved, quant, rest[which], 0xea);  // (moved & quant) | rest
      _mm512_storeu_si512(out + 64 * (column + which), _mm512_permutexvar_epi8(index, tables));
    }
  }
}

#else

template <class P>
[[gnu::always_inline]] inline void decode_nibbles(typename Simd::F scale, typename Simd::F offset,
                                                  const std::byte* nibbles, std::byte* out) {
  float scales[kPanelCols];
  float offsets[kPanelCols];
  Simd::store(scales, scale);
  Simd::store(offsets, offset);
  for (int column = 0; column < kPanelCols; ++column, nibbles += 16) {
    std::uint16_t table[16];
    std::uint16_t row[kQuantBlock];
    Simd::store_bf16(table, nibble_values<P>(nibble_counting<P>(), scales[column], offsets[column]));
    for (int feature = 0; feature < kQuantBlock; ++feature) {
      const int place = nibble_place(feature);
      row[feature] = table[(static_cast<int>(nibbles[place / 2]) >> (place % 2 * 4)) & 15];
    }
    __builtin_memcpy(out + 64 * column, row, sizeof row);
  }
}

#endif

}  // namespace
}  // namespace quire
