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

// One block times one vector of columns, as the arithmetic wants it.
template <class P>
struct Unpacked {
  typename Columns::B quants[8];
  ScalesOf<P> scales;
};

template <class P>
struct RowsScratch {
  float sums[kTilesAtOnce * kRowTile * Columns::kGemmPanels * kPanelCols];  // [row][panel][column]
  Unpacked<P> blocks[kChunkBlocks * kVecs * Columns::kGemmPanels];          // [block][panel][vector]
};

inline std::size_t rows_scratch_bytes() {
  return sizeof(RowsScratch<Packed<DType::kQ2_K>>);  // has the most scales
}

// Eight bits need no unpacking.
template <class P>
constexpr bool kInPlace = P::kBits == 8 && P::kGroups == 1;

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

template <class P, int kPanels>
void unpack(const Chunk<P, kPanels>& chunk, Unpacked<P>* out) {
  for (int p = 0; p < kPanels; ++p) {
    const std::byte* meta = chunk.meta[p];
    const std::byte* quants = chunk.quants[p];
    Unpacked<P>* to = out + p * kVecs;
    for (std::int64_t b = 0; b < chunk.count; b += P::kGroups) {
      const std::byte* header = meta;
      meta += P::kHeader;
#pragma GCC unroll 1
      for (int g = 0; g < P::kGroups; ++g, meta += P::kEntry, quants += P::kQuantBytes) {
        for (int v = 0; v < kVecs; ++v) {
          for (int group = 0; group < 8; ++group)
            to[v].quants[group] = quant_group<P>(quants + v * kVecBytes, group);
          to[v].scales = load_scales<P>(header, meta, v);
        }
        to += kPanels * kVecs;
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

template <class P, int kPanels>
[[gnu::always_inline]] inline void ask_for_block(const Ahead& ahead, std::int64_t block) {
  const std::byte* from = ahead.from + block * P::kQuantBytes;
  for (std::int64_t line = 0; line < ahead.lines; ++line) {
    for (int p = 0; p < kPanels; ++p)
      __builtin_prefetch(from + static_cast<std::size_t>(p) * ahead.panel_bytes + 64 * line);
  }
}

template <class P, int kPanels>
void ask_for_scales(const Chunk<P, kPanels>& chunk) {
  const std::int64_t bytes = chunk.count / P::kGroups * P::kHeader + chunk.count * P::kEntry;
  for (int p = 0; p < kPanels; ++p) {
    for (std::int64_t at = 0; at < bytes; at += 64)
      __builtin_prefetch(chunk.meta[p] + at);
  }
}

// sums[row][panel][column] of kRows rows += a chunk, from zero where it is the first.
template <class P, int kRows, int kPanels>
void multiply_chunk(const Chunk<P, kPanels>& chunk, const Ahead& ahead, const Unpacked<P>* unpacked,
                    const ActBlock* tile, std::int64_t tile_rows, bool first, float* sums) {
  using F = typename Columns::F;
  constexpr int kSpan = Columns::kGemmVecs;
  constexpr int kColumns = kPanels * kSpan;
  for (int first_vec = 0; first_vec < kVecs; first_vec += kSpan) {
    const auto vec_of = [&](int c) { return first_vec + c % kSpan; };
    const auto sums_of = [&](int r, int c) {
      return sums + (r * kPanels + c / kSpan) * kPanelCols + vec_of(c) * Columns::kLanes;
    };
    F acc[kColumns][kRows];
    for (int c = 0; c < kColumns; ++c) {
      for (int r = 0; r < kRows; ++r)
        acc[c][r] = first ? Columns::zero() : Columns::load(sums_of(r, c));
    }
    const ActBlock* x = tile;
    for (std::int64_t b = 0; b < chunk.count; ++b, x += tile_rows) {
      if (first_vec == 0) ask_for_block<P, kPanels>(ahead, b);
      const auto unpacked_of = [&](int c) -> const Unpacked<P>& {
        return unpacked[(b * kPanels + c / kSpan) * kVecs + vec_of(c)];
      };
      // Read where they are used: all rows take a vector before the next is loaded, and few registers hold them.
      const auto quants_of = [&](int c, int group) {
        if constexpr (kInPlace<P>) {
          return quant_group<P>(chunk.quants[c / kSpan] + b * P::kQuantBytes + vec_of(c) * kVecBytes, group);
        } else {
          return unpacked_of(c).quants[group];
        }
      };
      ScalesOf<P> s[kColumns];
      for (int c = 0; c < kColumns; ++c) {
        const std::byte* entry = chunk.meta[c / kSpan] + b * P::kEntry;
        s[c] = kInPlace<P> ? load_scales<P>(nullptr, entry, vec_of(c)) : unpacked_of(c).scales;
      }
      accumulate<P, kColumns, kRows>(&acc[0][0], kRows, quants_of, s, x);
    }
    for (int c = 0; c < kColumns; ++c) {
      for (int r = 0; r < kRows; ++r)
        Columns::store(sums_of(r, c), acc[c][r]);
    }
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
    float* sums = scratch_.sums;
    for (std::int64_t row = row_begin_; row < row_end_; ++row) {
      for (int p = 0; p < kPanels; ++p) {
        for (int v = 0; v < kVecs; ++v, sums += Columns::kLanes)
          write_out(args_, row, (panel + p) * kPanelCols + v * Columns::kLanes, Columns::load(sums));
      }
    }
  }

 private:
  std::int64_t first_count() const { return step_ < num_blocks_ ? step_ : num_blocks_; }

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

template <class P>
void gemm_int(const GemmArgs& args, const GemmRange& range, std::byte* scratch) {
  // A single row has registers to spare, and more panels at once are more streams from memory.
  if (args.rows == 1) return int_few_rows<P, 1, Columns::kSinglePanels>(args, range);
  if (args.rows == 2) return int_few_rows<P, 2, Columns::kGemmPanels>(args, range);
  if (args.rows <= Columns::kGemmRows) return int_few_rows<P, Columns::kGemmRows, Columns::kGemmPanels>(args, range);
  auto& rows_scratch = *reinterpret_cast<RowsScratch<P>*>(scratch);
  const std::int64_t end = range.tile_end * kRowTile < args.rows ? range.tile_end * kRowTile : args.rows;
  for (std::int64_t row = range.tile_begin * kRowTile; row < end; row += kTilesAtOnce * kRowTile) {
    const std::int64_t row_end = end - row < kTilesAtOnce * kRowTile ? end : row + kTilesAtOnce * kRowTile;
    std::int64_t panel = range.panel_begin;
    int_rows_of<P, Columns::kGemmPanels>(args, range, row, row_end, rows_scratch, panel);
    if constexpr (Columns::kGemmPanels > 1) int_rows_of<P, 1>(args, range, row, row_end, rows_scratch, panel);
  }
}

}  // namespace
}  // namespace quire
