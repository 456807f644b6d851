// Activations as bf16, for tiles and for dot products. Any thread.
// Included by an ISA level's file behind its Simd wrapper; everything here has internal linkage.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/products/transpose_impl.h"

namespace quire {
namespace {

constexpr int kHalvesRun = 32;  // values of one row that lie together

// Rounds depth [begin, end) of a row to bf16, into the row's place of its tile: [(end - begin) / 32][rows of the
// tile][32], the depth padded with zeros.
inline void round_depth(const RowOfMany& x, std::int64_t begin, std::int64_t end, std::uint16_t* tile) {
  const std::int64_t index = x.row % kAmxRowTile;
  const std::int64_t left = x.rows - x.row + index;
  const std::int64_t tile_rows = left < kAmxRowTile ? left : kAmxRowTile;
  for (std::int64_t k = begin; k < end; k += Simd::kLanes) {
    std::uint16_t* run = tile + ((k - begin) / kHalvesRun * tile_rows + index) * kHalvesRun;
    Simd::store_bf16(run + (k - begin) % kHalvesRun, Simd::load_partial(x.values + k, x.depth - k));
  }
}

// [tile][depth / 32][rows of the tile][32]
[[maybe_unused]] void round_row(const RowOfMany& x, std::uint16_t* out) {
  const std::int64_t depth = padded_depth(x.depth);
  round_depth(x, 0, depth, out + x.row / kAmxRowTile * kAmxRowTile * depth);
}

// [block of depth][tile][depth of the block / 32][rows of the tile][32]: the blocks of several tiles lie together.
// Apart by the bytes of a row tile, often a power of two, they would compete for a few places of the cache.
constexpr std::int64_t kHalvesBlock = 256;

// Offset of the features [32 * step, + 32) of the tile at `row`.
[[maybe_unused]] [[gnu::always_inline]] inline std::int64_t halves_offset(const GemmArgs& args, std::int64_t row,
                                                                          std::int64_t step) {
  const std::int64_t begin = step * kHalvesRun / kHalvesBlock * kHalvesBlock;
  const std::int64_t left = padded_depth(args.depth) - begin;
  const std::int64_t tile_rows = args.rows - row < kAmxRowTile ? args.rows - row : kAmxRowTile;
  return begin * args.rows + row * (left < kHalvesBlock ? left : kHalvesBlock) +
         (step * kHalvesRun - begin) * tile_rows;
}

[[maybe_unused]] void round_row_in_blocks(const RowOfMany& x, std::uint16_t* out) {
  const std::int64_t tile_row = x.row / kAmxRowTile * kAmxRowTile;
  for (std::int64_t begin = 0; begin < padded_depth(x.depth); begin += kHalvesBlock) {
    const std::int64_t left = padded_depth(x.depth) - begin;
    const std::int64_t depth = left < kHalvesBlock ? left : kHalvesBlock;
    round_depth(x, begin, begin + depth, out + begin * x.rows + tile_row * depth);
  }
}

// 32 features of up to kPairRows rows: [row][32] to [pair of features][row][2].
inline void turn_pairs(const std::uint16_t* halves, std::int64_t rows, std::uint16_t* pairs) {
  static_assert(Simd::kLanes == kPairRows && kHalvesRun == 2 * kPairRows);
  alignas(64) float turned[kPairRows * kPairRows];  // a pair is one dword
  if (rows < kPairRows) __builtin_memset(turned, 0, sizeof turned);
  __builtin_memcpy(turned, halves, static_cast<std::size_t>(rows) * kHalvesRun * 2);
  typename Simd::F columns[kPairRows];
  transpose16(turned, columns);
  for (int pair = 0; pair < kPairRows; ++pair) {
    Simd::store(turned, columns[pair]);
    if (rows == kPairRows) {
      __builtin_memcpy(pairs + 2 * kPairRows * pair, turned, 4 * kPairRows);
    } else {
      __builtin_memcpy(pairs + 2 * rows * pair, turned, static_cast<std::size_t>(rows) * 4);
    }
  }
}

[[maybe_unused]] void turn_rows_in_blocks(const RowOfMany& first, const std::uint16_t* halves, std::uint16_t* pairs) {
  const GemmArgs args{.depth = first.depth, .rows = first.rows};
  const std::int64_t tile_row = first.row / kAmxRowTile * kAmxRowTile;
  const std::int64_t left = first.rows - first.row;
  for (std::int64_t step = 0; step < padded_depth(first.depth) / kHalvesRun; ++step) {
    const std::int64_t at = halves_offset(args, tile_row, step) + (first.row - tile_row) * kHalvesRun;
    turn_pairs(halves + at, left < kPairRows ? left : kPairRows, pairs + at);
  }
}

}  // namespace
}  // namespace quire
