// Quantised products of more rows than one register block has: depth goes in chunks that stay in the first-level cache
// while all rows pass over them, and the next chunk comes from memory meanwhile. Any thread. Included by an ISA level's
// file behind its Simd wrapper; internal linkage. Invariant: sums of unfinished outputs wait in memory unrounded, so
// that a row's arithmetic is that of gemm_int_impl.h for a row alone.
#pragma once

#include "kernels/cpu/gemm_int_impl.h"

namespace quire {
namespace {

constexpr std::int64_t kChunkBlocks = 16;
constexpr std::int64_t kTilesAtOnce = 8;  // row tiles that share the unpacking of a chunk

// Whether unpacked groups are brought into an order of the level's own, and a sum holds two columns of two rows instead
// of one vector of columns.
template <class Level = Columns>
constexpr bool orders_groups() {
  return requires {
    requires Level::kOrdersGroups;
  };
}
constexpr int kSumsPerVec = orders_groups() ? 2 : 1;

// One block times the vectors of columns that are multiplied together, as the arithmetic wants it.
template <class P>
struct Unpacked {
  static constexpr int kSpan = Columns::kGemmVecs;
  typename Columns::B quants[8][kSpan];
  ScalesOf<P> scales[kSpan * kSumsPerVec];
};

template <class P>
struct RowsScratch {
  float sums[kTilesAtOnce * kRowTile * Columns::kGemmPanels * kPanelCols];               // [row][panel][column]
  Unpacked<P> blocks[kChunkBlocks * kVecs / Columns::kGemmVecs * Columns::kGemmPanels];  // [block][panel][vectors]
};

inline std::size_t rows_scratch_bytes() {
  return sizeof(RowsScratch<Packed<DType::kQ2_K>>);  // has the most scales
}

// Eight bits need no unpacking.
template <class P>
constexpr bool kInPlace = P::kBits == 8 && P::kGroups == 1 && !orders_groups();

// Blocks [begin, begin + count) of kPanels panels.
template <class P, int kPanels>
struct Chunk {
  const std::byte* meta[kPanels];
  const std::byte* quants[kPanels];
  std::int64_t count;

  Chunk(const GemmArgs& args, std::int64_t panel, std::int64_t begin, std::int64_t blocks) : count(blocks) {
    for (int p = 0; p < kPanels; ++p) {
      const std::byte* base = args.weights + static_cast<std::size_t>(panel + p) * args.panel_bytes;
      meta[p] = base + begin / P::kGroups * (P::kHeader + P::kGroups * P::kEntry);
      quants[p] = base + args.quants_offset + begin * P::kQuantBytes;
    }
  }
};

// One vector, with its zero subtracted where the level's bytes are signed.
template <class P, class Level = Columns>
[[gnu::always_inline]] inline typename Level::B stored_group(const std::byte* q, int g) {
  const typename Level::B quants = quant_group<P>(q, g);
  if constexpr (Level::kSignedCodes && !P::kTable && !P::kSignedNibbles && P::kBits != 8 && P::kZero != 0) {
    return quants - static_cast<std::uint8_t>(P::kZero);
  } else {
    return quants;
  }
}

// Those of four columns as two sums of two columns want them.
template <class P, class Level = Columns>
[[gnu::always_inline]] inline void double_scales(const ScalesOf<P> of, ScalesOf<P>* out) {
  const auto spread = [](const typename Level::F& all, typename Level::F& low, typename Level::F& high) {
    low = all;
    high = all;
    Level::trade_halves(low, high);
  };
  spread(of.first, out[0].first, out[1].first);
  if constexpr (!kOneScale<P>) spread(of.second, out[0].second, out[1].second);
  if constexpr (P::kScales == ScaleForm::kNibbleHalves) {
    spread(of.minimum[0], out[0].minimum[0], out[1].minimum[0]);
    spread(of.minimum[1], out[0].minimum[1], out[1].minimum[1]);
  }
}

// All is read before the first of it is written, which the compiler takes for what is read next.
template <class P, class Level = Columns>
[[gnu::always_inline]] inline void unpack_block(const std::byte* header, const std::byte* meta, const std::byte* quants,
                                                int part, Unpacked<P>& out) {
  constexpr int kSpan = Columns::kGemmVecs;
  typename Columns::B made[8][kSpan];
  for (int v = 0; v < kSpan; ++v) {
    for (int group = 0; group < 8; ++group)
      made[group][v] = stored_group<P>(quants + (part * kSpan + v) * kVecBytes, group);
  }
  for (int group = 0; group < 8; group += 2) {
    for (int v = 0; v < kSpan; ++v) {
      if constexpr (orders_groups<Level>()) {
        Level::order_groups(made[group][v], made[group + 1][v]);
        out.quants[group + v][0] = made[group][v];
        out.quants[group + v][1] = made[group + 1][v];
      } else {
        out.quants[group][v] = made[group][v];
        out.quants[group + 1][v] = made[group + 1][v];
      }
    }
  }
  load_scales_of<P, kSpan>(header, meta, part * kSpan, out.scales);
  if constexpr (orders_groups<Level>()) {
    for (int v = kSpan - 1; v >= 0; --v)
      double_scales<P>(out.scales[v], out.scales + 2 * v);
  }
}

template <class P, int kPanels>
void unpack(const Chunk<P, kPanels>& chunk, Unpacked<P>* out) {
  constexpr int kSpan = Columns::kGemmVecs;
  constexpr int kParts = kVecs / kSpan;
  for (int p = 0; p < kPanels; ++p) {
    const std::byte* meta = chunk.meta[p];
    const std::byte* quants = chunk.quants[p];
    Unpacked<P>* to = out + p * kParts;
    for (std::int64_t b = 0; b < chunk.count; b += P::kGroups) {
      const std::byte* header = meta;
      meta += P::kHeader;
#pragma GCC unroll 1
      for (int g = 0; g < P::kGroups; ++g, meta += P::kEntry, quants += P::kQuantBytes) {
        for (int part = 0; part < kParts; ++part)
          unpack_block<P>(header, meta, quants, part, to[part]);
        to += kPanels * kParts;
      }
    }
  }
}

// What one group of rows asks for of the next chunk: `lines` of each block's quants in each panel.
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

// The quants of one block as they lie in memory: read where they are used, so that all rows take a vector before the
// next is loaded, and few registers hold them.
template <class P, int kPanels>
struct StoredQuants {
  static constexpr int kSpan = Columns::kGemmVecs;
  static constexpr int kShift = quant_shift<P>();
  static constexpr bool kCentred = Columns::kSignedCodes || (P::kDotBits == 8 && Columns::kCentred8);
  static constexpr int kGroupBytes = (kInPlace<P> ? kVecs : kSpan) * kVecBytes;
  const std::byte* of_panel[kPanels];

  [[gnu::always_inline]] const std::byte* address(int column, int group) const {
    return of_panel[column / kSpan] + group * kGroupBytes + column % kSpan * kVecBytes;
  }
  [[gnu::always_inline]] typename Columns::B operator()(int column, int group) const {
    return Columns::load_bytes(address(column, group));
  }
};

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

// sums[row][panel][column] of kRows rows += a chunk, from zero where it is the first.
template <class P, int kRows, int kPanels>
[[gnu::noinline]] void multiply_chunk(const Chunk<P, kPanels>& of, const Ahead& next, const Unpacked<P>* unpacked,
                                      const ActBlock* tile, std::int64_t tile_rows, bool first, float* sums) {
  const Chunk<P, kPanels> chunk = of;  // in registers
  const Ahead ahead = next;
  constexpr int kSpan = Columns::kGemmVecs;
  constexpr int kColumns = kPanels * kSpan;
  for (int first_vec = 0; first_vec < kVecs; first_vec += kSpan) {
    const auto vec_of = [&](int c) { return first_vec + c % kSpan; };
    const auto sums_of = [&](int r, int c) {
      return sums + (r * kPanels + c / kSpan) * kPanelCols + vec_of(c) * Columns::kLanes;
    };
    TileSums<kRows, kColumns> acc;
    if (first) {
      acc.clear();
    } else {
      acc.load(sums_of);
    }
    const std::int64_t lines = first_vec == 0 ? ahead.lines : 0;
    const Unpacked<P>* blocks = unpacked + first_vec / kSpan;
    const std::byte* asked = ahead.from;
    std::int64_t b = 0;
    const ActBlock* const end = tile + chunk.count * tile_rows;
    for (const ActBlock* x = tile; x != end; x += tile_rows, ++b, blocks += kPanels * kVecs / kSpan) {
      if (lines > 0) {
        ask_for_block<kPanels>(ahead, asked);
        asked += P::kQuantBytes;
      }
      StoredQuants<P, kPanels> quants;
      ScalesOf<P> copied[kColumns];
      const ScalesOf<P>* s = copied;
      for (int p = 0; p < kPanels; ++p) {
        const Unpacked<P>& block = blocks[p * (kVecs / kSpan)];
        if constexpr (kInPlace<P>) {
          quants.of_panel[p] = chunk.quants[p] + b * P::kQuantBytes + first_vec * kVecBytes;
        } else {
          quants.of_panel[p] = reinterpret_cast<const std::byte*>(block.quants);
        }
        if (!kInPlace<P> && kPanels == 1) {
          s = block.scales;  // in memory until the sums are there
          continue;
        }
        if constexpr (kInPlace<P>) {
          load_scales_of<P, kSpan>(nullptr, chunk.meta[p] + b * P::kEntry, first_vec, copied + p * kSpan);
        } else {
          for (int v = 0; v < kSpan; ++v)
            copied[p * kSpan + v] = block.scales[v];
        }
      }
      accumulate<P, acc.kSums, acc.kUnits>(&acc.of[0][0], acc.kUnits, quants, s, acc.rows_at(x));
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
      if constexpr (!kInPlace<P>) unpack(chunk, scratch_.blocks);
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
      multiply_chunk<P, kRows, kPanels>(chunk, ahead, scratch_.blocks, x, tile_rows, begin == 0,
                                        scratch_.sums + (row - row_begin_) * kPanels * kPanelCols);
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

// Up to so many rows are multiplied tile by tile, with weights that are unpacked in registers for each tile: for few
// tiles that takes less time than unpacking them to memory once. A second tile finds a panel in the first-level cache.
// The sums of a tile and a panel fit the registers where one vector has all columns. Types with a sum for each half of
// a block gain for one tile only (tests/bench/README.md). 0: no rows.
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
