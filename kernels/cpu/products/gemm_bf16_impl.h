// Matrix products of bf16 activations with BF16 weights by the dot product of pairs. Any thread. Included by a level
// with AVX512-BF16 behind its Simd wrapper and gemm_int_impl.h; everything here has internal linkage. Invariant: one
// output is a single chain over the pairs of the depth in order, the same in every register block.
#pragma once

#include "kernels/cpu/products/gemm_int_impl.h"
#include "kernels/cpu/products/round_row_impl.h"

namespace quire {
namespace {

constexpr int kBf16Rows = 8;
constexpr int kBf16Panels = 2;
constexpr int kBf16SinglePanels = 8;  // panels for one row: independent sums and streams

// Two bf16 of one row in every lane.
[[gnu::always_inline]] inline __m512bh broadcast_pair(const std::uint16_t* from) {
  float pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_ps(pair));
}

// kRows rows of a tile of `tile_rows` times kPanels panels.
template <int kRows, int kPanels>
void bf16_block(const GemmArgs& args, std::int64_t panel, const std::uint16_t* x, std::int64_t tile_rows,
                std::int64_t row, std::int64_t valid_rows) {
  __m512 acc[kPanels][kRows];
  for (int p = 0; p < kPanels; ++p) {
    for (int r = 0; r < kRows; ++r)
      acc[p][r] = _mm512_setzero_ps();
  }
  const std::byte* weights = args.weights + static_cast<std::size_t>(panel) * args.panel_bytes;
  for (std::int64_t k = 0; k < padded_depth(args.depth); k += kHalvesRun) {
#pragma GCC unroll 2
    for (int pair = 0; pair < kHalvesRun; pair += 2) {
      __m512bh w[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        const std::byte* at = weights + static_cast<std::size_t>(p) * args.panel_bytes;
        if (kRows == 1) __builtin_prefetch(at + kPrefetch);
        w[p] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(at));
      }
      for (int r = 0; r < kRows; ++r) {
        const __m512bh two = broadcast_pair(x + r * kHalvesRun + pair);
        for (int p = 0; p < kPanels; ++p)
          acc[p][r] = _mm512_dpbf16_ps(acc[p][r], w[p], two);
      }
      weights += 2 * kPanelCols * 2;
    }
    x += tile_rows * kHalvesRun;
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int r = 0; r < kRows && r < valid_rows; ++r)
      write_out(args, row + r, (panel + p) * kPanelCols, acc[p][r]);
  }
}

template <int kPanels>
void bf16_tile(const GemmArgs& args, std::int64_t panel, std::int64_t tile) {
  const std::int64_t row = tile * kAmxRowTile;
  const std::int64_t left = args.rows - row;
  const std::int64_t rows = left < kAmxRowTile ? left : kAmxRowTile;
  const std::uint16_t* x = args.halves + row * padded_depth(args.depth);
  std::int64_t r = 0;
  for (; r + kBf16Rows <= rows; r += kBf16Rows)
    bf16_block<kBf16Rows, kPanels>(args, panel, x + r * kHalvesRun, rows, row + r, kBf16Rows);
  for (; r + 4 <= rows; r += 4)
    bf16_block<4, kPanels>(args, panel, x + r * kHalvesRun, rows, row + r, 4);
  for (; r + 2 <= rows; r += 2)
    bf16_block<2, kPanels>(args, panel, x + r * kHalvesRun, rows, row + r, 2);
  if (r < rows) bf16_block<1, kPanels>(args, panel, x + r * kHalvesRun, rows, row + r, 1);
}

template <int kPanels>
void bf16_panels(const GemmArgs& args, const GemmRange& range, std::int64_t& panel) {
  for (; panel + kPanels <= range.panel_end; panel += kPanels) {
    for (std::int64_t tile = range.tile_begin; tile < range.tile_end; ++tile)
      bf16_tile<kPanels>(args, panel, tile);
  }
}

void gemm_bf16(const GemmArgs& args, const GemmRange& range, std::byte* /*scratch*/) {
  std::int64_t panel = range.panel_begin;
  if (args.rows == 1) bf16_panels<kBf16SinglePanels>(args, range, panel);
  bf16_panels<kBf16Panels>(args, range, panel);
  bf16_panels<1>(args, range, panel);
}

}  // namespace
}  // namespace quire
