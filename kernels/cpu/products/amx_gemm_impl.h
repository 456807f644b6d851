// Matrix products on AMX bf16 tiles: activations rounded to bf16 once per operation, weights decoded to bf16 beside the
// caches (BF16 weights are read in place). Any thread. Included by a level file behind its Simd wrapper (sixteen
// lanes), gemm_int_impl.h and amx_tiles.h; internal linkage. Invariant: one output is a chain of tile products over the
// depth in order, whatever the number of rows in the tile.
#pragma once

#include "kernels/cpu/products/amx_decode_impl.h"
#include "kernels/cpu/products/amx_left_tiles.h"
#include "kernels/cpu/products/amx_tiles.h"
#include "kernels/cpu/products/round_row_impl.h"

namespace quire {
namespace {

// With one tile of rows, weights are decoded this many tiles ahead of their product, into a ring: tile loads cannot be
// forwarded from stores that still wait for the cache, and so both units work at the same time.
constexpr std::int64_t kDecodeLead = 2;
constexpr std::int64_t kDecodeRing = 4;
// With more rows, depth goes in blocks: two panels of a block, and a tile's rows of it, stay in the first-level cache
// while all row tiles pass over them, and the rows' share of the block stays in the second-level cache while all panels
// of the piece do. Meanwhile the next two panels are decoded. Sums of unfinished outputs wait in memory beside them,
// which changes no bit of them.
constexpr std::int64_t kBlockSteps = kHalvesBlock / kTileDepth;
constexpr std::int64_t kBlockTiles = 16;
constexpr std::int64_t kBlockPanels = 16;
constexpr std::int64_t kPairSums = 4 * kTileRows * kPanelCols;      // floats of a row tile times two panels
constexpr std::int64_t kBlockBytes = 2 * kBlockSteps * kTileBytes;  // two panels of a block, decoded

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

// Calls visit<half, panel>() for each tile of sums in use.
template <int kPanels, class Visit>
[[gnu::always_inline]] inline void each_sum(TileShape shape, const Visit& visit) {
  visit.template operator()<0, 0>();
  if constexpr (kPanels == 2) visit.template operator()<0, 1>();
  if (shape.second == 0) return;
  visit.template operator()<1, 0>();
  if constexpr (kPanels == 2) visit.template operator()<1, 1>();
}

// Multiplies one step of depth, 32 features.
template <int kPanels, class Tiles>
[[gnu::always_inline]] inline void multiply_step(Tiles& tiles, const std::uint16_t* x, TileShape shape,
                                                 const std::byte* const* weights) {
  tiles.template load_weights<0>(weights[0]);
  tiles.template load_rows<0>(x);
  tiles.template multiply<0, 0>();
  if constexpr (kPanels == 2) {
    tiles.template load_weights<1>(weights[1]);
    tiles.template multiply<0, 1>();
  }
  if (shape.second > 0) {
    tiles.template load_rows<1>(x + kTileRows * kTileDepth);
    tiles.template multiply<1, 0>();
    if constexpr (kPanels == 2) tiles.template multiply<1, 1>();
  }
}

template <class Tiles>
constexpr bool kWeightsLeft = requires {
  Tiles::kWeightsLeft;
};

template <int kHalf, int kPanel, class Tiles>
void write_tile(Tiles& tiles, const GemmArgs& args, std::int64_t row, int rows, std::int64_t panel) {
  alignas(64) float block[kTileRows * kPanelCols];
  const std::int64_t first = row + kHalf * kTileRows;
  const std::int64_t column = (panel + kPanel) * kPanelCols;
  if constexpr (kWeightsLeft<Tiles>) {
    if (rows < kTileRows) __builtin_memset(block, 0, sizeof block);
    tiles.template store<kHalf, kPanel>(block);
    typename Simd::F turned[kTileRows];
    transpose16(block, turned);
    for (int r = 0; r < rows; ++r)
      write_out(args, first + r, column, turned[r]);
  } else {
    tiles.template store<kHalf, kPanel>(block);
    for (int r = 0; r < rows; ++r)
      write_out(args, first + r, column, Simd::load(block + r * kPanelCols));
  }
}

template <int kPanels, class Tiles>
void write_tiles(Tiles& tiles, const GemmArgs& args, std::int64_t row, TileShape shape, std::int64_t panel) {
  each_sum<kPanels>(shape, [&]<int kHalf, int kPanel>() {
    write_tile<kHalf, kPanel>(tiles, args, row, kHalf == 0 ? shape.first : shape.second, panel);
  });
}

// Multiplies all panels of the range, a number divisible by kPanels, by one row tile: sums stay in the tiles for the
// whole depth, and reading continues over the ends of panels.
template <class P, class Tiles, int kPanels>
void amx_panels(const GemmArgs& args, const GemmRange& range, std::byte* scratch) {
  const std::int64_t depth = padded_depth(args.depth);
  const std::int64_t steps = depth / kTileDepth;
  const std::int64_t row = range.tile_begin * kAmxRowTile;
  const TileShape shape = tile_shape(args.rows - row);
  const std::int64_t count = (range.panel_end - range.panel_begin) / kPanels * steps;
  PanelReader<P> readers[kPanels];
  const std::byte* weights[kDecodeRing][kPanels];
  std::int64_t reading = range.panel_begin;  // panel
  std::int64_t panel = range.panel_begin;
  std::int64_t read_step = 0;
  std::int64_t step = 0;
  Tiles tiles;
  tiles.configure(shape.first, shape.second);
  for (std::int64_t i = 0; i < count + kDecodeLead; ++i) {
    if (i < count) {
      if (read_step == 0) {
        for (int p = 0; p < kPanels; ++p) {
          const std::byte* follows = args.weights + static_cast<std::size_t>(reading + kPanels + p) * args.panel_bytes;
          readers[p] = PanelReader<P>(args, reading + p, 0, kPrefetchOnce, follows);
        }
        reading += kPanels;
      }
      read_step = read_step + 1 == steps ? 0 : read_step + 1;
      const std::int64_t ring_place = i % kDecodeRing;
      for (int p = 0; p < kPanels; ++p)
        weights[ring_place][p] = readers[p].next(scratch + (ring_place * kPanels + p) * kTileBytes);
    }
    if (i < kDecodeLead) continue;
    if (step == 0) tiles.clear();
    multiply_step<kPanels>(tiles, args.halves + halves_offset(args, row, step), shape,
                           weights[(i - kDecodeLead) % kDecodeRing]);
    if (++step < steps) continue;
    write_tiles<kPanels>(tiles, args, row, shape, panel);
    panel += kPanels;
    step = 0;
  }
  tiles.release();
}

// Place of the sums of a row tile times two panels: strides in floats from one row, half and panel to the next.
struct SumsPlace {
  float* first;
  std::int64_t row;
  std::int64_t half;
  std::int64_t panel;
  float* of(int half_index, int panel_index) const { return first + half_index * half + panel_index * panel; }
};

template <int kPanels, class Tiles>
[[gnu::always_inline]] inline void load_sums(Tiles& tiles, TileShape shape, const SumsPlace& from) {
  each_sum<kPanels>(shape, [&]<int kHalf, int kPanel>() {
    tiles.template load_sums<kHalf, kPanel>(from.of(kHalf, kPanel), from.row * 4);
  });
}

template <int kPanels, class Tiles>
[[gnu::always_inline]] inline void store_sums(Tiles& tiles, TileShape shape, const SumsPlace& to) {
  each_sum<kPanels>(
      shape, [&]<int kHalf, int kPanel>() { tiles.template store<kHalf, kPanel>(to.of(kHalf, kPanel), to.row * 4); });
}

// A block of depth of one or two panels, and how far it is decoded.
template <class P>
class BlockOfWeights {
 public:
  void begin(const GemmArgs& args, std::int64_t panel, int panels, std::int64_t block, std::byte* scratch) {
    const std::int64_t begin = block * kHalvesBlock;
    const std::int64_t left = (padded_depth(args.depth) - begin) / kTileDepth;
    const int ahead = __is_same(P, TileBF16) ? 0 : kPrefetchBlock;  // BF16 is read by the next block's products
    panel_ = panel;
    panels_ = panels;
    block_ = block;
    steps_ = left < kBlockSteps ? left : kBlockSteps;
    decoded_ = 0;
    scratch_ = scratch;
    for (int p = 0; p < panels; ++p)
      readers_[p] = PanelReader<P>(args, panel + p, begin, ahead, nullptr);
  }

  // Advances by at most the steps that are left.
  void decode(std::int64_t steps) {
    for (; steps > 0 && decoded_ < steps_; --steps, ++decoded_) {
      for (int p = 0; p < panels_; ++p)
        weights_[decoded_][p] = readers_[p].next(scratch_ + (2 * decoded_ + p) * kTileBytes);
    }
  }

  std::int64_t panel() const { return panel_; }
  int panels() const { return panels_; }
  std::int64_t block() const { return block_; }
  std::int64_t steps() const { return steps_; }
  const std::byte* const* weights(std::int64_t step) const { return weights_[step]; }

 private:
  std::int64_t panel_ = 0;
  int panels_ = 0;
  std::int64_t block_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t decoded_ = 0;
  std::byte* scratch_ = nullptr;
  PanelReader<P> readers_[2];
  const std::byte* weights_[kBlockSteps][2];
};

// A block of weights times one row tile; `sums` of unfinished outputs has kPairSums floats. Each of the first steps
// decodes one of the next block: little enough at a time for the processor to do both at once.
template <int kPanels, class P, class Tiles>
void multiply_block(Tiles& tiles, const GemmArgs& args, const BlockOfWeights<P>& weights, BlockOfWeights<P>& next,
                    std::int64_t steps_of_next, std::int64_t row, TileShape shape, float* sums) {
  const std::int64_t first_step = weights.block() * kBlockSteps;
  const SumsPlace place{sums, kTileRows, kPairSums / 2, kPairSums / 4};
  if (first_step == 0) {
    tiles.clear();
  } else {
    load_sums<kPanels>(tiles, shape, place);
  }
  const std::uint16_t* x = args.halves + halves_offset(args, row, first_step);
  for (std::int64_t step = 0; step < weights.steps(); ++step, x += shape.rows() * kTileDepth) {
    if (step < steps_of_next) next.decode(1);
    multiply_step<kPanels>(tiles, x, shape, weights.weights(step));
  }
  if ((first_step + weights.steps()) * kTileDepth < padded_depth(args.depth)) {
    store_sums<kPanels>(tiles, shape, place);
  } else {
    write_tiles<kPanels>(tiles, args, row, shape, weights.panel());
  }
}

// Panels and row tiles up to kBlockPanels and kBlockTiles.
template <class P, class Tiles>
void amx_blocks(const GemmArgs& args, const GemmRange& range, std::byte* scratch, float* sums) {
  const std::int64_t blocks = (padded_depth(args.depth) + kHalvesBlock - 1) / kHalvesBlock;
  const std::int64_t panels = range.panel_end - range.panel_begin;
  const std::int64_t pairs = (panels + 1) / 2;
  const std::int64_t num_tiles = range.tile_end - range.tile_begin;
  const std::int64_t share = (kBlockSteps + num_tiles - 1) / num_tiles;
  BlockOfWeights<P> buffers[2];
  const auto begin = [&](std::int64_t item) {
    const std::int64_t first = item % pairs * 2;
    buffers[item % 2].begin(args, range.panel_begin + first, panels - first < 2 ? 1 : 2, item / pairs,
                            scratch + item % 2 * kBlockBytes);
  };
  begin(0);
  buffers[0].decode(kBlockSteps);
  Tiles tiles;
  int configured = 0;
  for (std::int64_t item = 0; item < blocks * pairs; ++item) {
    const BlockOfWeights<P>& now = buffers[item % 2];
    BlockOfWeights<P>& next = buffers[(item + 1) % 2];
    const bool last = item + 1 == blocks * pairs;
    if (!last) begin(item + 1);
    float* pair_sums = sums + item % pairs * kBlockTiles * kPairSums;
    for (std::int64_t tile = range.tile_begin; tile < range.tile_end; ++tile, pair_sums += kPairSums) {
      const std::int64_t row = tile * kAmxRowTile;
      const TileShape shape = tile_shape(args.rows - row);
      if (shape.rows() != configured) tiles.configure(shape.first, shape.second);
      configured = shape.rows();
      if (now.panels() == 2) {
        multiply_block<2>(tiles, args, now, next, last ? 0 : share, row, shape, pair_sums);
      } else {
        multiply_block<1>(tiles, args, now, next, last ? 0 : share, row, shape, pair_sums);
      }
    }
    if (!last) next.decode(kBlockSteps);  // a last block of fewer steps has left some
  }
  tiles.release();
}

// P: a Packing, TileF16 or TileBF16.
template <class P, class Tiles>
void gemm_amx(const GemmArgs& args, const GemmRange& range, std::byte* scratch) {
  if (range.tile_end - range.tile_begin == 1) {
    const std::int64_t middle = range.panel_end - (range.panel_end - range.panel_begin) % 2;
    if (middle > range.panel_begin)
      amx_panels<P, Tiles, 2>(args, {range.panel_begin, middle, range.tile_begin, range.tile_end}, scratch);
    if (middle < range.panel_end)
      amx_panels<P, Tiles, 1>(args, {middle, range.panel_end, range.tile_begin, range.tile_end}, scratch);
    return;
  }
  auto* sums = reinterpret_cast<float*>(scratch + 2 * kBlockBytes);
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
