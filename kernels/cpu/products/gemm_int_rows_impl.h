// Quantised products of more rows than a register block has: depth goes in chunks that stay in the first-level cache
// while all rows pass over them, and the next chunk comes from memory meanwhile. Any thread. Included by an ISA level's
// file behind its Simd wrapper; internal linkage. Invariant: sums of unfinished outputs wait in memory unrounded, so
// that a row's arithmetic is that of gemm_int_impl.h for a row alone.
#pragma once

#include "kernels/cpu/products/gemm_int_chunk_impl.h"

namespace quire {
namespace {

constexpr std::int64_t kTilesAtOnce = 8;  // row tiles that share the unpacking of a chunk

template <class P>
struct RowsScratch {
  float sums[kTilesAtOnce * kRowTile * Columns::kGemmPanels * kPanelCols];               // [row][panel][column]
  Unpacked<P> blocks[kChunkBlocks * kVecs / Columns::kGemmVecs * Columns::kGemmPanels];  // [block][panel][vectors]
};

inline std::size_t rows_scratch_bytes() {
  return sizeof(RowsScratch<Packed<DType::kQ2_K>>);  // has the most scales
}

// Prefetches of one group of rows for the next chunk: `lines` of each block's quants in each panel.
struct Ahead {
  const std::byte* from;
  std::size_t panel_bytes;
  std::int64_t lines;
};

template <int kPanels>
[[gnu::always_inline]] inline void ask_for_block(const Ahead& ahead, const std::byte* from) {
  const auto ask = [&](std::int64_t line) {
    for (int p = 0; p < kPanels; ++p)
      __builtin_prefetch(from + static_cast<std::size_t>(p) * ahead.panel_bytes + 64 * line);
  };
  ask(0);
  for (std::int64_t line = 1; line < ahead.lines; ++line)
    ask(line);
}

template <class P, int kPanels>
void ask_for_scales(const Chunk<P, kPanels>& chunk) {
  const std::int64_t bytes = chunk.count / P::kGroups * P::kHeader + chunk.count * P::kEntry;
  for (int p = 0; p < kPanels; ++p) {
    for (std::int64_t at = 0; at < bytes; at += 64)
      __builtin_prefetch(chunk.meta[p] + at);
  }
}

// The sums of kRows rows and kColumns vectors of columns, in registers: one for each row and vector, or where groups
// are ordered two for each pair of rows and vector.
template <int kRows, int kColumns, class Level = Columns>
struct TileSums {
  static constexpr bool kInPairs = orders_groups<Level>();
  static constexpr int kUnits = kInPairs ? (kRows + 1) / 2 : kRows;
  static constexpr int kSums = kColumns * kSumsPerVec;
  using F = typename Level::F;
  F of[kSums][kUnits];

  static auto rows_at(const ActBlock* x) {
    if constexpr (!kInPairs) {
      return quire::rows_at<kRows>(x);
    } else if constexpr (kRows == 4) {
      return typename Level::QuadPairs{reinterpret_cast<const ActQuad*>(x)};
    } else {
      return typename Level::template RowPair<kRows>{x};
    }
  }
  [[gnu::always_inline]] void clear() {
    for (int c = 0; c < kSums; ++c) {
      for (int u = 0; u < kUnits; ++u)
        of[c][u] = Level::zero();
    }
  }
  // place(row, column): where they wait.
  template <class Place>
  [[gnu::always_inline]] void load(const Place& place) {
    for (int c = 0; c < kColumns; ++c) {
      for (int u = 0; u < kUnits; ++u) {
        if constexpr (kInPairs) {
          of[2 * c][u] = Level::load(place(2 * u, c));
          of[2 * c + 1][u] = kRows == 1 ? of[2 * c][u] : Level::load(place(2 * u + 1, c));
          Level::trade_halves(of[2 * c][u], of[2 * c + 1][u]);
        } else {
          of[c][u] = Level::load(place(u, c));
        }
      }
    }
  }
  template <class Place>
  [[gnu::always_inline]] void store(const Place& place) {
    for (int c = 0; c < kColumns; ++c) {
      for (int u = 0; u < kUnits; ++u) {
        if constexpr (kInPairs) {
          Level::trade_halves(of[2 * c][u], of[2 * c + 1][u]);
          Level::store(place(2 * u, c), of[2 * c][u]);
          if constexpr (kRows > 1) Level::store(place(2 * u + 1, c), of[2 * c + 1][u]);
        } else {
          Level::store(place(u, c), of[c][u]);
        }
      }
    }
  }
};

// sums[row][panel][column] of kRows rows += a chunk; the first chunk starts from zero.
template <class P, int kRows, int kPanels, class Blocks = ReadBlocks<P, kPanels>>
[[gnu::noinline]] void multiply_chunk(const Chunk<P, kPanels>& chunk, const Ahead& next, Unpacked<P>* unpacked,
                                      const ActBlock* tile, std::int64_t tile_rows, bool first, float* sums) {
  const Ahead ahead = next;  // a copy that stays in registers
  constexpr int kSpan = Columns::kGemmVecs;
  constexpr int kColumns = kPanels * kSpan;
  const ActBlock* const end = tile + chunk.count * tile_rows;
  for (int first_vec = 0; first_vec < kVecs; first_vec += kSpan) {
    const auto sums_of = [&](int r, int c) {
      return sums + (r * kPanels + c / kSpan) * kPanelCols + (first_vec + c % kSpan) * Columns::kLanes;
    };
    TileSums<kRows, kColumns> acc;
    if (first) {
      acc.clear();
    } else {
      acc.load(sums_of);
    }
    const std::int64_t lines = first_vec == 0 ? ahead.lines : 0;
    const std::byte* asked = ahead.from;
    Blocks blocks(chunk, unpacked, first_vec);
    for (const ActBlock* x = tile; x != end; x += tile_rows, blocks.next()) {
      if (lines > 0) {
        ask_for_block<kPanels>(ahead, asked);
        asked += P::kQuantBytes;
      }
      ScalesOf<P> copied[kColumns];
      const ScalesOf<P>* s = blocks.scales(copied);
      accumulate<P, acc.kSums, acc.kUnits>(&acc.of[0][0], acc.kUnits, blocks.quants(), s, acc.rows_at(x));
    }
    acc.store(sums_of);
  }
}

// Rows [row_begin, row_end), whole tiles but for the last, times kPanels panels.
template <class P, int kPanels>
class RowsProduct {
 public:
  RowsProduct(const GemmArgs& args, std::int64_t row_begin, std::int64_t row_end, RowsScratch<P>& scratch)
      : args_(args), row_begin_(row_begin), row_end_(row_end), scratch_(scratch) {
    num_blocks_ = args.depth / kQuantBlock;
    const std::int64_t chunks = (num_blocks_ + kChunkBlocks - 1) / kChunkBlocks;
    step_ = (num_blocks_ + chunks - 1) / chunks;
    step_ = (step_ + P::kGroups - 1) / P::kGroups * P::kGroups;
    num_groups_ = (row_end - row_begin + Columns::kGemmRows - 1) / Columns::kGemmRows;
  }

  void run(std::int64_t panel) {
    Chunk<P, kPanels> chunk(args_, panel, 0, first_count());
    for (std::int64_t begin = 0; begin < num_blocks_; begin += step_) {
      const std::int64_t left = num_blocks_ - begin - chunk.count;
      const Chunk<P, kPanels> next = left > 0
                                         ? Chunk<P, kPanels>(args_, panel, begin + step_, left < step_ ? left : step_)
                                         : Chunk<P, kPanels>(args_, panel + kPanels, 0, first_count());
      if constexpr (!kInPlace<P> && !kFirstRowsUnpack<P>) unpack(chunk, scratch_.blocks);
      ask_for_scales(next);
      multiply_rows(chunk, next, begin);
      chunk = next;
    }
    write_rows(panel);
  }

 private:
  std::int64_t first_count() const { return step_ < num_blocks_ ? step_ : num_blocks_; }

  void write_rows(std::int64_t panel) {
    const float* sums = scratch_.sums;
    const std::int64_t col = panel * kPanelCols;
    const bool as_it_is = args_.scale == 1.0f && args_.bias == nullptr && !args_.accumulate && !args_.past_caches &&
                          col + kPanels * kPanelCols <= args_.out_cols;
    for (std::int64_t row = row_begin_; row < row_end_; ++row) {
      float* out = args_.out + row * args_.out_stride + col;
      for (int v = 0; v < kPanels * kVecs; ++v, sums += Columns::kLanes) {
        if (as_it_is) {
          Columns::store(out + v * Columns::kLanes, Columns::load(sums));
        } else {
          write_out(args_, row, col + v * Columns::kLanes, Columns::load(sums));
        }
      }
    }
  }

  void multiply_rows(const Chunk<P, kPanels>& chunk, const Chunk<P, kPanels>& next, std::int64_t begin) {
    constexpr std::int64_t kLines = P::kQuantBytes / 64;
    std::int64_t group = 0;
    const auto multiply = [&]<int kRows>(const ActBlock* x, std::int64_t tile_rows, std::int64_t row) {
      const std::int64_t first_line = kLines * group / num_groups_;
      ++group;
      const Ahead ahead{next.quants[0] + 64 * first_line, args_.panel_bytes, kLines * group / num_groups_ - first_line};
      float* sums = scratch_.sums + (row - row_begin_) * kPanels * kPanelCols;
      if constexpr (kFirstRowsUnpack<P>) {
        if (row == row_begin_) {
          return multiply_chunk<P, kRows, kPanels, UnpackBlocks<P, kPanels>>(chunk, ahead, scratch_.blocks, x,
                                                                             tile_rows, begin == 0, sums);
        }
      }
      multiply_chunk<P, kRows, kPanels>(chunk, ahead, scratch_.blocks, x, tile_rows, begin == 0, sums);
    };
    for (std::int64_t row = row_begin_; row < row_end_; row += kRowTile) {
      const std::int64_t left = args_.rows - row;
      const std::int64_t valid = left < kRowTile ? left : kRowTile;
      const std::int64_t padded = padded_tile_rows(valid);
      const ActBlock* x = args_.blocks + row * num_blocks_ + begin * padded;
      for (std::int64_t r = 0; r < valid; r += Columns::kGemmRows) {
        if (valid - r == 1) {
          multiply.template operator()<1>(x + r, padded, row + r);
        } else if (valid - r == 2) {
          multiply.template operator()<2>(x + r, padded, row + r);
        } else {
          multiply.template operator()<Columns::kGemmRows>(x + r, padded, row + r);
        }
      }
    }
  }

  const GemmArgs& args_;
  std::int64_t row_begin_;
  std::int64_t row_end_;
  RowsScratch<P>& scratch_;
  std::int64_t num_blocks_;
  std::int64_t step_;
  std::int64_t num_groups_;
};

template <class P, int kPanels>
void int_rows_of(const GemmArgs& args, const GemmRange& range, std::int64_t row, std::int64_t row_end,
                 RowsScratch<P>& scratch, std::int64_t& panel) {
  RowsProduct<P, kPanels> product(args, row, row_end, scratch);
  for (; panel + kPanels <= range.panel_end; panel += kPanels)
    product.run(panel);
}

// Most rows multiplied tile by tile, with weights unpacked in registers for each tile: for few tiles that takes less
// time than unpacking them to memory once. A second tile finds a panel in the first-level cache. The sums of a tile and
// a panel fit the registers if one vector has all columns. Types with a sum for each half of a block gain for one tile
// only (tests/bench/README.md). 0: no rows.
template <class P>
constexpr std::int64_t kMostRowsInRegisters = kVecs > 1 || kInPlace<P> ? 0 : (P::kHalves ? 1 : 2) * kRowTile;

// Rows [row, end), whole tiles but for the last of all, times kPanels panels, which are multiplied together where the
// sums of all fit the registers.
template <class P, int kPanels>
void int_tiles(const GemmArgs& args, std::int64_t panel, std::int64_t row, std::int64_t end) {
  for (; row < end; row += kRowTile) {
    switch (end - row) {
      case 1: int_rows<P, 1, kPanels>(args, panel, row); break;
      case 2: int_rows<P, 2, kPanels>(args, panel, row); break;
      case 3:
      case 4: int_rows<P, 4, kPanels>(args, panel, row); break;
      case 5: int_rows<P, 5, kPanels, kRowTile>(args, panel, row); break;
      case 6:
        for (int p = 0; p < kPanels; ++p)
          int_rows<P, 6, 1, kRowTile>(args, panel + p, row);
        break;
      default:
        for (int p = 0; p < kPanels; ++p)
          int_rows<P, kRowTile, 1>(args, panel + p, row);
        break;
    }
  }
}

template <class P>
void gemm_int(const GemmArgs& args, const GemmRange& range, std::byte* scratch) {
  // A single row has registers to spare, and more panels at once are more streams from memory.
  if (args.rows == 1) return int_few_rows<P, 1, Columns::kSinglePanels>(args, range);
  if (args.rows == 2) return int_few_rows<P, 2, Columns::kGemmPanels>(args, range);
  if (args.rows <= Columns::kGemmRows) return int_few_rows<P, Columns::kGemmRows, Columns::kGemmPanels>(args, range);
  const std::int64_t begin = range.tile_begin * kRowTile;
  const std::int64_t end = range.tile_end * kRowTile < args.rows ? range.tile_end * kRowTile : args.rows;
  constexpr std::int64_t kMostInRegisters = kMostRowsInRegisters<P>;
  if constexpr (kMostInRegisters > 0) {
    if (args.rows <= kMostInRegisters) {
      std::int64_t panel = range.panel_begin;
      for (; panel + Columns::kGemmPanels <= range.panel_end; panel += Columns::kGemmPanels)
        int_tiles<P, Columns::kGemmPanels>(args, panel, begin, end);
      for (; panel < range.panel_end; ++panel)
        int_tiles<P, 1>(args, panel, begin, end);
      return;
    }
  }
  auto& rows_scratch = *reinterpret_cast<RowsScratch<P>*>(scratch);
  for (std::int64_t row = begin; row < end; row += kTilesAtOnce * kRowTile) {
    const std::int64_t row_end = end - row < kTilesAtOnce * kRowTile ? end : row + kTilesAtOnce * kRowTile;
    std::int64_t panel = range.panel_begin;
    int_rows_of<P, Columns::kGemmPanels>(args, range, row, row_end, rows_scratch, panel);
    if constexpr (Columns::kGemmPanels > 1) int_rows_of<P, 1>(args, range, row, row_end, rows_scratch, panel);
  }
}

}  // namespace
}  // namespace quire
