// Sixteen rows of sixteen dwords, turned into their columns. Any thread. Included by a level file behind its Simd
// wrapper (sixteen lanes); internal linkage.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

// columns[c] is element c of each row; the rows lie one behind the other.
#ifdef __AVX512F__
[[gnu::always_inline]] inline void transpose16(const float* rows, __m512* columns) {
#pragma GCC unroll 4
  for (int group = 0; group < 4; ++group) {
    // Row r + 4 * lane in lane `lane`: then only elements within lanes are left to exchange.
    __m512 part[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const float* from = rows + 16 * r + 4 * group;
      part[r] = _mm512_castps128_ps512(_mm_loadu_ps(from));
      part[r] = _mm512_insertf32x4(part[r], _mm_loadu_ps(from + 64), 1);
      part[r] = _mm512_insertf32x4(part[r], _mm_loadu_ps(from + 128), 2);
      part[r] = _mm512_insertf32x4(part[r], _mm_loadu_ps(from + 192), 3);
    }
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(part[0], part[1]));
    const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(part[2], part[3]));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(part[0], part[1]));
    const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(part[2], part[3]));
    columns[4 * group] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
    columns[4 * group + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
    columns[4 * group + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
    columns[4 * group + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
  }
}
#else
inline void transpose16(const float* rows, typename Simd::F* columns) {
  for (int c = 0; c < 16; ++c) {
    float column[16];
    for (int r = 0; r < 16; ++r)
      column[r] = rows[16 * r + c];
    columns[c] = Simd::load(column);
  }
}
#endif

}  // namespace
}  // namespace quire
