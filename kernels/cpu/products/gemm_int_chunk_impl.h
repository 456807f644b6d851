// Ways to read the weights of a chunk of depth for a product of many rows: in place, unpacked to memory, or unpacked by
// the first rows that use them. Any thread. Included by gemm_int_rows_impl.h; internal linkage. Invariant: all ways
// give the same values.
#pragma once

#include "kernels/cpu/products/gemm_int_impl.h"

namespace quire {
namespace {

constexpr std::int64_t kChunkBlocks = 16;

// Returns whether unpacked groups are put into an order of the level's own, with a sum holding two columns of two rows
// instead of one vector of columns.
template <class Level = Columns>
constexpr bool orders_groups() {
  return requires {
    requires Level::kOrdersGroups;
  };
}
constexpr int kSumsPerVec = orders_groups() ? 2 : 1;

// A block of the column vectors that are multiplied together, in the arithmetic's layout.
template <class P>
struct Unpacked {
  static constexpr int kSpan = Columns::kGemmVecs;
  typename Columns::B quants[8][kSpan];
  ScalesOf<P> scales[kSpan * kSumsPerVec];
};

// Eight bits need no unpacking.
template <class P>
constexpr bool kInPlace = P::kBits == 8 && P::kGroups == 1 && !orders_groups();

// If one vector has all columns of a panel, the first rows multiplied with a chunk unpack it for the others.
// Sixteen registers are too few for both (tests/bench/README.md).
template <class P>
constexpr bool kFirstRowsUnpack = !kInPlace<P> && kVecs == 1 && !orders_groups();

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

// Loads a vector; its zero is subtracted where the level's bytes are signed.
template <class P, class Level = Columns>
[[gnu::always_inline]] inline typename Level::B stored_group(const std::byte* q, int g) {
  const typename Level::B quants = quant_group<P>(q, g);
  if constexpr (Level::kSignedCodes && !P::kTable && !P::kSignedNibbles && P::kBits != 8 && P::kZero != 0) {
    return quants - static_cast<std::uint8_t>(P::kZero);
  } else {
    return quants;
  }
}

// Arranges the scales of four columns for two sums of two columns.
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

// Reads everything before the first write, because the compiler assumes that writes may alias later reads.
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

// Reads a chunk block by block for one group of rows: vectors [first_vec, first_vec + kGemmVecs) of each panel, in
// place or as they were unpacked.
template <class P, int kPanels>
class ReadBlocks {
 public:
  static constexpr int kSpan = Columns::kGemmVecs;
  ReadBlocks(const Chunk<P, kPanels>& chunk, Unpacked<P>* unpacked, int first_vec)
      : chunk_(chunk), blocks_(unpacked + first_vec / kSpan), first_vec_(first_vec) {}

  [[gnu::always_inline]] auto quants() const {
    StoredQuants<P, kPanels> quants;
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (kInPlace<P>) {
        quants.of_panel[p] = chunk_.quants[p] + block_ * P::kQuantBytes + first_vec_ * kVecBytes;
      } else {
        quants.of_panel[p] = reinterpret_cast<const std::byte*>(blocks_[p * (kVecs / kSpan)].quants);
      }
    }
    return quants;
  }
  // Copies the scales; a single panel's stay in memory until the sums are complete.
  [[gnu::always_inline]] const ScalesOf<P>* scales(ScalesOf<P>* copied) const {
    if constexpr (!kInPlace<P> && kPanels == 1) return blocks_->scales;
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (kInPlace<P>) {
        load_scales_of<P, kSpan>(nullptr, chunk_.meta[p] + block_ * P::kEntry, first_vec_, copied + p * kSpan);
      } else {
        for (int v = 0; v < kSpan; ++v)
          copied[p * kSpan + v] = blocks_[p * (kVecs / kSpan)].scales[v];
      }
    }
    return copied;
  }
  [[gnu::always_inline]] void next() {
    ++block_;
    blocks_ += kPanels * kVecs / kSpan;
  }

 private:
  Chunk<P, kPanels> chunk_;
  const Unpacked<P>* blocks_;
  int first_vec_;
  std::int64_t block_ = 0;
};

// The quants of one block, unpacked where they are multiplied and stored for the groups of rows that follow.
template <class P, int kPanels>
struct UnpackingQuants {
  static constexpr int kShift = quant_shift<P>();
  static constexpr bool kCentred = StoredQuants<P, kPanels>::kCentred;
  const std::byte* packed[kPanels];
  Unpacked<P>* to;  // panel after panel

  [[gnu::always_inline]] typename Columns::B operator()(int panel, int group) const {
    const typename Columns::B quants = stored_group<P>(packed[panel], group);
    to[panel].quants[group][0] = quants;
    return quants;
  }
};

// Reads the same blocks for the first group of rows, and unpacks them for the others. The products hide the time that
// unpacking takes.
template <class P, int kPanels>
class UnpackBlocks {
 public:
  static_assert(kFirstRowsUnpack<P>);
  UnpackBlocks(const Chunk<P, kPanels>& chunk, Unpacked<P>* unpacked, int /*first_vec*/)
      : chunk_(chunk), to_(unpacked) {
    begin_super_block();
  }

  [[gnu::always_inline]] auto quants() const {
    UnpackingQuants<P, kPanels> quants;
    for (int p = 0; p < kPanels; ++p)
      quants.packed[p] = chunk_.quants[p];
    quants.to = to_;
    return quants;
  }
  [[gnu::always_inline]] const ScalesOf<P>* scales(ScalesOf<P>* copied) const {
    for (int p = 0; p < kPanels; ++p) {
      copied[p] = load_scales<P>(header_[p], chunk_.meta[p], 0);
      to_[p].scales[0] = copied[p];
    }
    return copied;
  }
  [[gnu::always_inline]] void next() {
    for (int p = 0; p < kPanels; ++p) {
      chunk_.meta[p] += P::kEntry;
      chunk_.quants[p] += P::kQuantBytes;
    }
    to_ += kPanels;
    if (++group_ == P::kGroups) begin_super_block();
  }

 private:
  [[gnu::always_inline]] void begin_super_block() {
    group_ = 0;
    for (int p = 0; p < kPanels; ++p) {
      header_[p] = chunk_.meta[p];
      chunk_.meta[p] += P::kHeader;
    }
  }

  Chunk<P, kPanels> chunk_;
  const std::byte* header_[kPanels];
  Unpacked<P>* to_;
  int group_;
};

}  // namespace
}  // namespace quire
