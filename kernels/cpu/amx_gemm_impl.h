// Matrix products on AMX bf16 tiles: activations rounded to bf16 once per operation, weights decoded to bf16 beside the
// caches (BF16 weights are read in place). Any thread. Included by a level file behind its Simd wrapper (sixteen
// lanes), gemm_int_impl.h and amx_tiles.h; internal linkage. Invariant: one output is a chain of tile products over the
// depth in order, whatever the number of rows in the tile.
#pragma once

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/gemm_int_impl.h"
#include "kernels/cpu/round_tile_impl.h"

namespace quire {
namespace {

// Depth decoded at a time when weights are used only once: two panels of it stay in the first-level cache.
constexpr std::int64_t kDecodeDepth = 256;
// With more rows than one tile, depth goes in blocks: two panels of a block decoded stay in the first-level cache while
// all row tiles pass over them, and the rows' share of the block stays in the second-level cache while all panels of
// the piece do. Sums of unfinished outputs wait in memory beside them, which changes no bit of them.
constexpr std::int64_t kBlockDepth = 512;
constexpr std::int64_t kBlockTiles = 16;
constexpr std::int64_t kBlockPanels = 16;
constexpr std::int64_t kPairSums = 4 * kTileRows * kPanelCols;  // floats of a row tile times two panels

// Decodes depth [begin, end) (multiples of 32; K-quants begin at multiples of 256) of a panel to B tiles.
template <class P>
void decode_panel(const std::byte* panel, std::size_t quants_offset, std::int64_t begin, std::int64_t end,
                  std::byte* out) {
  using F = typename Simd::F;
  const std::byte* meta = panel + begin / kQuantBlock / P::kGroups * (P::kHeader + P::kGroups * P::kEntry);
  const std::byte* quants = panel + quants_offset + begin / kQuantBlock * P::kQuantBytes;
  const F zero = Simd::set1(-static_cast<float>(P::kZero));
  for (std::int64_t k = begin; k < end; k += kQuantBlock * P::kGroups) {
    const std::byte* header = meta;
    meta += P::kHeader;
#pragma GCC unroll 1
    for (int g = 0; g < P::kGroups; ++g, meta += P::kEntry, quants += P::kQuantBytes) {
      for (int line = 0; line < P::kQuantBytes; line += 64)
        __builtin_prefetch(quants + kPrefetch + line);
      __builtin_prefetch(meta + kPrefetchScales);
      const Scales s = load_scales<P>(header, meta, 0);
      for (int i = 0; i < 8; ++i, out += 128) {
        const typename Simd::B w = quant_group<P::kBits>(quants, i);
        const F scale = P::kBits == 6 && i >= 4 ? s.second : s.first;
        // A fused multiply-add of exact factors: (quant - zero) * scale rounded once.
        const F offset = P::kZero == 0 ? s.second : Simd::mul(zero, scale);
        Simd::store_bf16_pairs(out, Simd::fma(Simd::template byte_of_four<0>(w), scale, offset),
                               Simd::fma(Simd::template byte_of_four<1>(w), scale, offset));
        Simd::store_bf16_pairs(out + 64, Simd::fma(Simd::template byte_of_four<2>(w), scale, offset),
                               Simd::fma(Simd::template byte_of_four<3>(w), scale, offset));
      }
    }
  }
}

struct TileF16 {};
struct TileBF16 {};

// Where the B tiles of depth [begin, end) of a panel are: decoded into `scratch`, or the weights themselves.
template <class P>
const std::byte* weight_tiles(const GemmArgs& args, std::int64_t panel, std::int64_t begin, std::int64_t end,
                              std::byte* scratch) {
  const std::byte* from = args.weights + static_cast<std::size_t>(panel) * args.panel_bytes;
  if constexpr (__is_same(P, TileBF16)) {
    return from + begin * kPanelCols * 2;
  } else if constexpr (__is_same(P, TileF16)) {
    std::byte* out = scratch;
    for (std::int64_t k = begin; k < end; k += 2, out += 64) {
      const std::uint16_t* pair = halves(from) + k * kPanelCols;
      Simd::store_bf16_pairs(out, Simd::load_f16(pair), Simd::load_f16(pair + kPanelCols));
    }
    return scratch;
  } else {
    decode_panel<P>(from, args.quants_offset, begin, end, scratch);
    return scratch;
  }
}

// Rows of one tile of activations: two halves of up to sixteen.
struct TileShape {
  int first;
  int second;
  int rows() const { return first + second; }
};

inline TileShape tile_shape(std::int64_t rows) {
  const int count = static_cast<int>(rows < kAmxRowTile ? rows : kAmxRowTile);
  return {count < kTileRows ? count : kTileRows, count > kTileRows ? count - kTileRows : 0};
}

template <int kPanels, class Tiles>
void multiply_depth(Tiles& tiles, const std::uint16_t* x, TileShape shape, const std::byte* const* weights,
                    std::int64_t depth) {
  for (std::int64_t k = 0; k < depth; k += kTileDepth) {
    const std::int64_t at = k / kTileDepth * kTileBytes;
    tiles.template load_weights<0>(weights[0] + at);
    if constexpr (kPanels == 2) tiles.template load_weights<1>(weights[1] + at);
    tiles.template load_rows<0>(x);
    tiles.template multiply<0, 0>();
    if constexpr (kPanels == 2) tiles.template multiply<0, 1>();
    if (shape.second > 0) {
      tiles.template load_rows<1>(x + kTileRows * kTileDepth);
      tiles.template multiply<1, 0>();
      if constexpr (kPanels == 2) tiles.template multiply<1, 1>();
    }
    x += shape.rows() * kTileDepth;
  }
}

template <int kHalf, int kPanel, class Tiles>
void write_tile(Tiles& tiles, const GemmArgs& args, std::int64_t row, int rows, std::int64_t panel) {
  alignas(64) float block[kTileRows * kPanelCols];
  tiles.template store<kHalf, kPanel>(block);
  for (int r = 0; r < rows; ++r) {
    write_out(args, row + kHalf * kTileRows + r, (panel + kPanel) * kPanelCols, Simd::load(block + r * kPanelCols));
  }
}

template <int kPanels, class Tiles>
void write_tiles(Tiles& tiles, const GemmArgs& args, std::int64_t row, TileShape shape, std::int64_t panel) {
  write_tile<0, 0>(tiles, args, row, shape.first, panel);
  if constexpr (kPanels == 2) write_tile<0, 1>(tiles, args, row, shape.first, panel);
  if (shape.second == 0) return;
  write_tile<1, 0>(tiles, args, row, shape.second, panel);
  if constexpr (kPanels == 2) write_tile<1, 1>(tiles, args, row, shape.second, panel);
}

template <class P, int kPanels>
void decode_panels(const GemmArgs& args, std::int64_t panel, std::int64_t begin, std::int64_t end, std::byte* scratch,
                   const std::byte** weights) {
  for (int p = 0; p < kPanels; ++p) {
    weights[p] = weight_tiles<P>(args, panel + p, begin, end, scratch + p * kBlockDepth * kPanelCols * 2);
  }
}

// One row tile: sums stay in the tiles for the whole depth.
template <class P, class Tiles, int kPanels>
void amx_panels(const GemmArgs& args, std::int64_t tile, std::int64_t panel, std::byte* scratch) {
  const std::int64_t depth = padded_depth(args.depth);
  const std::int64_t row = tile * kAmxRowTile;
  const TileShape shape = tile_shape(args.rows - row);
  const std::uint16_t* x = args.halves + row * depth;
  const std::byte* weights[kPanels];
  Tiles tiles;
  tiles.configure(shape.first, shape.second);
  tiles.clear();
  for (std::int64_t k = 0; k < depth; k += kDecodeDepth) {
    const std::int64_t end = k + kDecodeDepth < depth ? k + kDecodeDepth : depth;
    decode_panels<P, kPanels>(args, panel, k, end, scratch, weights);
    multiply_depth<kPanels>(tiles, x + k * shape.rows(), shape, weights, end - k);
  }
  write_tiles<kPanels>(tiles, args, row, shape, panel);
  tiles.release();
}

template <int kPanels, class Tiles>
void load_sums(Tiles& tiles, const float* from, TileShape shape) {
  tiles.template load_sums<0, 0>(from);
  if constexpr (kPanels == 2) tiles.template load_sums<0, 1>(from + kPairSums / 4);
  if (shape.second == 0) return;
  tiles.template load_sums<1, 0>(from + kPairSums / 2);
  if constexpr (kPanels == 2) tiles.template load_sums<1, 1>(from + kPairSums / 4 * 3);
}

template <int kPanels, class Tiles>
void store_sums(Tiles& tiles, float* to, TileShape shape) {
  tiles.template store<0, 0>(to);
  if constexpr (kPanels == 2) tiles.template store<0, 1>(to + kPairSums / 4);
  if (shape.second == 0) return;
  tiles.template store<1, 0>(to + kPairSums / 2);
  if constexpr (kPanels == 2) tiles.template store<1, 1>(to + kPairSums / 4 * 3);
}

// Depth [k, end) of kPanels panels times all row tiles of the range; `sums` has kPairSums floats for each.
template <class P, class Tiles, int kPanels>
void amx_block(const GemmArgs& args, const GemmRange& range, std::int64_t panel, std::int64_t k, std::int64_t end,
               std::byte* scratch, float* sums) {
  const std::int64_t depth = padded_depth(args.depth);
  const std::byte* weights[kPanels];
  decode_panels<P, kPanels>(args, panel, k, end, scratch, weights);
  Tiles tiles;
  int configured = 0;
  for (std::int64_t tile = range.tile_begin; tile < range.tile_end; ++tile, sums += kPairSums) {
    const std::int64_t row = tile * kAmxRowTile;
    const TileShape shape = tile_shape(args.rows - row);
    if (shape.rows() != configured) tiles.configure(shape.first, shape.second);
    configured = shape.rows();
    if (k == 0) {
      tiles.clear();
    } else {
      load_sums<kPanels>(tiles, sums, shape);
    }
    multiply_depth<kPanels>(tiles, args.halves + row * depth + k * shape.rows(), shape, weights, end - k);
    if (end < depth) {
      store_sums<kPanels>(tiles, sums, shape);
    } else {
      write_tiles<kPanels>(tiles, args, row, shape, panel);
    }
  }
  tiles.release();
}

// Panels and row tiles up to kBlockPanels and kBlockTiles.
template <class P, class Tiles>
void amx_blocks(const GemmArgs& args, const GemmRange& range, std::byte* scratch, float* sums) {
  const std::int64_t depth = padded_depth(args.depth);
  for (std::int64_t k = 0; k < depth; k += kBlockDepth) {
    const std::int64_t end = k + kBlockDepth < depth ? k + kBlockDepth : depth;
    float* pair_sums = sums;
    std::int64_t panel = range.panel_begin;
    for (; panel + 2 <= range.panel_end; panel += 2, pair_sums += kBlockTiles * kPairSums)
      amx_block<P, Tiles, 2>(args, range, panel, k, end, scratch, pair_sums);
    if (panel < range.panel_end) amx_block<P, Tiles, 1>(args, range, panel, k, end, scratch, pair_sums);
  }
}

// P: a Packing, TileF16 or TileBF16.
template <class P, class Tiles>
void gemm_amx(const GemmArgs& args, const GemmRange& range, std::byte* scratch) {
  if (range.tile_end - range.tile_begin == 1) {
    std::int64_t panel = range.panel_begin;
    for (; panel + 2 <= range.panel_end; panel += 2)
      amx_panels<P, Tiles, 2>(args, range.tile_begin, panel, scratch);
    if (panel < range.panel_end) amx_panels<P, Tiles, 1>(args, range.tile_begin, panel, scratch);
    return;
  }
  auto* sums = reinterpret_cast<float*>(scratch + 2 * kBlockDepth * kPanelCols * 2);
  const auto bounded = [](std::int64_t begin, std::int64_t step, std::int64_t end) {
    return begin + step < end ? begin + step : end;
  };
  for (std::int64_t tile = range.tile_begin; tile < range.tile_end; tile += kBlockTiles) {
    for (std::int64_t panel = range.panel_begin; panel < range.panel_end; panel += kBlockPanels) {
      const GemmRange block{panel, bounded(panel, kBlockPanels, range.panel_end), tile,
                            bounded(tile, kBlockTiles, range.tile_end)};
      amx_blocks<P, Tiles>(args, block, scratch, sums);
    }
  }
}

}  // namespace
}  // namespace quire
