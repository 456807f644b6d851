// Matrix products with quantised weights: integer dot products per block of 32, scaled into f32 in block order. Any
// thread. Included by an ISA level's file behind its Simd wrapper; everything here has internal linkage. Invariant: one
// row's arithmetic is a chain over blocks that is the same in every register block.
#pragma once

#include <type_traits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/products/quantize_impl.h"
#include "kernels/formats/packed_format.h"

namespace quire {
namespace {

constexpr int kVecs = kPanelCols / Columns::kLanes;  // vectors that span a panel
constexpr int kVecBytes = 4 * Columns::kLanes;

// Prefetch distances of quants and scales before their first use: streams are too short for the hardware to notice them
// in time.
constexpr int kPrefetch = 3072;
constexpr int kPrefetchScales = 512;

// Compile-time facts of a packed type. Scales lie in a region of their own, the meta data of the blocks.
template <DType kType>
struct Packed {
  static constexpr PackedFormat kFormat = packed_format(kType);
  static constexpr int kBits = kFormat.bits;
  static constexpr int kDotBits = kFormat.dot_bits;
  static constexpr int kZero = kFormat.zero;
  static constexpr int kGroups = kFormat.groups;  // blocks of 32 per super-block
  static constexpr int kHeader = kFormat.header;
  static constexpr int kEntry = kFormat.entry;
  static constexpr int kQuantBytes = 64 * kBits;  // bytes of 32 x 16 quants
  static constexpr ScaleForm kScales = kFormat.scales;
  static constexpr bool kHalves = kFormat.has_halves();
  static constexpr bool kTable = kFormat.table != CodeTable::kLinear;
  static constexpr bool kSignedNibbles = Columns::kSignedCodes && kFormat.signed_nibbles();
  // Nibbles that lie by column where a level wants that.
  static constexpr bool kByColumn = kBits == 4 && !kHalves;
};

// Factor for each code, the zero not yet subtracted.
struct LookupTable {
  alignas(16) std::uint8_t of[16];
};
constexpr LookupTable lookup_table(PackedFormat format) {
  LookupTable out{};
  const CodeValues values = code_values(format.table);
  const int zero = Columns::kSignedCodes ? 0 : format.zero;
  for (int i = 0; i < 16; ++i)
    out.of[i] = static_cast<std::uint8_t>(values.of[i] + zero);
  return out;
}
template <class P>
constexpr LookupTable kLookup = lookup_table(P::kFormat);

// Codes of group g of four features of 32 x kLanes, one vector. Unpacked at its use: all eight groups would fill the
// registers.
template <int kBits>
[[gnu::always_inline]] inline typename Columns::B code_group(const std::byte* q, int g) {
  if constexpr (kBits == 8) {
    return Columns::load_bytes(q + 64 * g);
  } else if constexpr (kBits == 2) {
    return Columns::template take_bits<3>(Columns::load_bytes(q + 64 * (g / 4)), 2 * (g % 4));
  } else if constexpr (kBits == 3) {
    return Columns::template merge_bits<4>(code_group<2>(q + 64, g), Columns::load_bytes(q), 2 - g);
  } else if constexpr (kBits == 4) {
    const typename Columns::B pair = Columns::load_bytes(q + 64 * (g / 2));
    return g % 2 == 0 ? Columns::low_nibbles(pair) : Columns::high_nibbles(pair);
  } else if constexpr (kBits == 5) {
    return Columns::template merge_bits<0x10>(code_group<4>(q + 64, g), Columns::load_bytes(q), 4 - g);
  } else {
    const typename Columns::B plane = Columns::load_bytes(q + 64 * (g / 4));
    return Columns::template merge_bits<0x30>(code_group<4>(q + 128, g), plane, 4 - 2 * (g % 4));
  }
}

// Power of two by which quants of signed nibbles are too large; the dot product divides by it.
template <class P, class Level = Columns>
constexpr int quant_shift() {
  if constexpr (P::kSignedNibbles) {
    return Level::kNibbleShift;
  } else {
    return 0;
  }
}
template <class P, class Level = Columns>
[[gnu::always_inline]] inline typename Level::B signed_group(const std::byte* q, int g) {
  const typename Level::B pair = Level::load_bytes(q + 64 * (g / 2));
  return g % 2 == 0 ? Level::signed_low_nibbles(pair) : Level::signed_high_nibbles(pair);
}

// A group's quants in the dot product's form.
template <class P>
[[gnu::always_inline]] inline typename Columns::B quant_group(const std::byte* q, int g) {
  if constexpr (P::kTable) return Columns::lookup(code_group<P::kBits>(q, g), kLookup<P>.of);
  if constexpr (P::kSignedNibbles) return signed_group<P>(q, g);
  return code_group<P::kBits>(q, g);
}

[[gnu::always_inline]] inline const std::uint16_t* halves(const std::byte* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}
[[gnu::always_inline]] inline const std::uint8_t* octets(const std::byte* p) {
  return reinterpret_cast<const std::uint8_t*>(p);
}

// Scales of 32 x kLanes columns. One scale: `first` multiplies the quants; `second`, if present, is a minimum added per
// activation. Two: each multiplies 16 of the quants.
struct OneScale {
  typename Columns::F first;
};
struct Scales : OneScale {
  typename Columns::F second;
};
// Zero if there is no second scale.
[[maybe_unused, gnu::always_inline]] inline typename Columns::F second_of(const OneScale&) {
  return Columns::zero();
}
[[maybe_unused, gnu::always_inline]] inline typename Columns::F second_of(const Scales& s) {
  return s.second;
}
// With two scales, the minimum added for each half: a 32nd of the format's, because of the units of DotStart.
struct ScalesAndMinima : Scales {
  typename Columns::F minimum[2];
};
template <class P>
constexpr bool kOneScale = P::kScales == ScaleForm::kHalf || P::kScales == ScaleForm::kHeaderHalf ||
                           P::kScales == ScaleForm::kSigned || P::kScales == ScaleForm::kPower;
template <class P>
using ScalesOf =
    std::conditional_t<kOneScale<P>, OneScale,
                       std::conditional_t<P::kScales == ScaleForm::kNibbleHalves, ScalesAndMinima, Scales>>;

// The f16 at the start of a header times the form's unit.
template <class P>
[[gnu::always_inline]] inline typename Columns::F header_scale(const std::byte* header, int lane) {
  const typename Columns::F d = Columns::load_f16(halves(header) + lane);
  if constexpr (P::kFormat.unit != 1.0f) return Columns::mul(d, Columns::set1(P::kFormat.unit));
  return d;
}

template <class P>
[[gnu::always_inline]] inline ScalesAndMinima load_nibble_scales(const std::byte* header, const std::byte* entry,
                                                                 int lane) {
  const typename Columns::F d = Columns::load_f16(halves(header) + lane);
  const typename Columns::F m =
      Columns::mul(Columns::load_f16(halves(header) + 16 + lane), Columns::set1(1.0f / 32.0f));
  ScalesAndMinima s;
  s.first = Columns::mul(d, Columns::load_low_nibbles(octets(entry) + lane));
  s.second = Columns::mul(d, Columns::load_low_nibbles(octets(entry) + 16 + lane));
  s.minimum[0] = Columns::mul(m, Columns::load_high_nibbles(octets(entry) + lane));
  s.minimum[1] = Columns::mul(m, Columns::load_high_nibbles(octets(entry) + 16 + lane));
  return s;
}

[[maybe_unused, gnu::always_inline]] inline Scales scale_and_minimum(typename Columns::F d, typename Columns::F m,
                                                                     typename Columns::F scale,
                                                                     typename Columns::F minimum) {
  return {{Columns::mul(d, scale)}, Columns::sub(Columns::zero(), Columns::mul(m, minimum))};
}

template <class P>
[[gnu::always_inline]] inline ScalesOf<P> load_scales(const std::byte* header, const std::byte* entry, int vec) {
  using F = typename Columns::F;
  const int lane = vec * Columns::kLanes;
  const auto* sub = reinterpret_cast<const std::int8_t*>(entry);
  if constexpr (P::kScales == ScaleForm::kHalf) {
    return {Columns::load_f16(halves(entry) + lane)};
  } else if constexpr (P::kScales == ScaleForm::kHalfMinimum) {
    return {Columns::load_f16(halves(entry) + lane), Columns::load_f16(halves(entry) + 16 + lane)};
  } else if constexpr (P::kScales == ScaleForm::kHeaderHalf) {
    return {Columns::load_f16(halves(header) + lane)};
  } else if constexpr (P::kScales == ScaleForm::kSigned) {
    return {Columns::mul(header_scale<P>(header, lane), Columns::load_i8(sub + lane))};
  } else if constexpr (P::kScales == ScaleForm::kSignedHalves) {
    const F d = header_scale<P>(header, lane);
    return {Columns::mul(d, Columns::load_i8(sub + lane)), Columns::mul(d, Columns::load_i8(sub + 16 + lane))};
  } else if constexpr (P::kScales == ScaleForm::kNibbleHalves) {
    return load_nibble_scales<P>(header, entry, lane);
  } else if constexpr (P::kScales == ScaleForm::kPower) {
    return {Columns::load_half_of_e8m0(octets(entry) + lane)};
  } else if constexpr (P::kScales == ScaleForm::kUe4m3Halves) {
    const F half = Columns::set1(0x1p119f);
    return {Columns::mul(half, Columns::load_small_e4m3(octets(entry) + lane)),
            Columns::mul(half, Columns::load_small_e4m3(octets(entry) + 16 + lane))};
  } else if constexpr (P::kScales == ScaleForm::kFloatZero) {
    const F scale = Columns::load(reinterpret_cast<const float*>(header) + lane);
    return {scale, Columns::sub(Columns::zero(), Columns::mul(scale, Columns::load_u8(octets(header) + 64 + lane)))};
  } else {
    const F d = Columns::load_f16(halves(header) + lane);
    const F m = Columns::load_f16(halves(header) + 16 + lane);
    return scale_and_minimum(d, m, Columns::load_u8(octets(entry) + lane), Columns::load_u8(octets(entry) + 16 + lane));
  }
}

// Loads the scales of vectors [vec, vec + kCount) of a panel. Scales of quarters are read together.
template <class P, int kCount, class Level = Columns>
[[gnu::always_inline]] inline void load_scales_of(const std::byte* header, const std::byte* entry, int vec,
                                                  ScalesOf<P>* out) {
  if constexpr (P::kScales == ScaleForm::kHalf && Level::kLanes == 4 && kCount % 2 == 0) {
    for (int v = 0; v < kCount; v += 2) {
      typename Level::F two[2];
      Level::load_f16_pair(halves(entry) + (vec + v) * Level::kLanes, two);
      out[v] = {two[0]};
      out[v + 1] = {two[1]};
    }
  } else if constexpr (P::kScales == ScaleForm::kPair8 && Level::kLanes == 4 && kCount == 4) {
    typename Level::F scales[kVecs];
    typename Level::F minima[kVecs];
    Level::load_u8_panel(octets(entry), scales);
    Level::load_u8_panel(octets(entry) + 16, minima);
    for (int v = 0; v < kVecs; ++v) {
      const typename Level::F d = Level::load_f16(halves(header) + v * Level::kLanes);
      const typename Level::F m = Level::load_f16(halves(header) + 16 + v * Level::kLanes);
      out[v] = scale_and_minimum(d, m, scales[v], minima[v]);
    }
  } else {
    for (int v = 0; v < kCount; ++v)
      out[v] = load_scales<P>(header, entry, vec + v);
  }
}

constexpr int log2_of(int power) {
  return power <= 1 ? 0 : 1 + log2_of(power / 2);
}

// Returns whether quants reach the dot product with their zero subtracted.
template <class P, class W>
constexpr bool is_centred() {
  if (P::kZero == 0 || (Columns::kSignedCodes && P::kTable) || P::kSignedNibbles) return true;
  if constexpr (requires { W::kCentred; }) return W::kCentred;
  return P::kDotBits == 8 && Columns::kCentred8;
}

// Minus the zero times the sum of activations: of all, or of half `half`.
template <class P, class W>
constexpr DotStart start_of(int half) {
  if (is_centred<P, W>()) return {};
  if (P::kHalves) return {3 + half, log2_of(P::kZero) - 5};
  if (P::kZero == 16) return {1, 0};
  if (P::kZero == 128) return {2, 0};
  return {0, log2_of(P::kZero) - 3};
}

// kRows rows of activations one by one: what accumulate() wants of them.
struct RowBlocks {
  const ActBlock* blocks;
  operator const ActBlock*() const { return blocks; }
  typename Columns::F scale(int row) const { return Columns::set1(blocks[row].scale); }
  typename Columns::F total(int row) const { return Columns::set1(blocks[row].total); }
  typename Columns::F start(int row, int i) const { return Columns::set1(static_cast<float>(blocks[row].start[i])); }
};
template <int kRows, class Level = Columns>
[[gnu::always_inline]] inline auto rows_at(const ActBlock* x) {
  if constexpr (Level::kQuads && kRows == 4) {
    return typename Level::QuadRows{reinterpret_cast<const ActQuad*>(x)};
  } else {
    return RowBlocks{x};
  }
}

// acc[p][r] += (32 quantised weights per lane of panel p) . (32 quantised activations of row r); acc[p] at p *
// acc_stride. Integer sums stay below 2^24: exact in f32. The sums of several rows hide the latency of each.
template <class P, int kPanels, int kRows, class W, class Rows>
[[gnu::always_inline]] inline void accumulate(typename Columns::F* acc, std::int64_t acc_stride, const W& w,
                                              const ScalesOf<P>* s, const Rows& x) {
  using F = typename Columns::F;
  F sum[kRows][kPanels];
  if constexpr (P::kHalves) {
    F high[kRows][kPanels];
    Columns::template dot<P::kDotBits, 0, 4, kPanels, kRows>(w, x, start_of<P, W>(0), sum);
    Columns::template dot<P::kDotBits, 4, 8, kPanels, kRows>(w, x, start_of<P, W>(1), high);
    for (int r = 0; r < kRows; ++r) {
      const F scale = x.scale(r);
      for (int p = 0; p < kPanels; ++p) {
        F both = Columns::fma(high[r][p], s[p].second, Columns::mul(sum[r][p], s[p].first));
        if constexpr (P::kScales == ScaleForm::kNibbleHalves) {
          both = Columns::fma(x.start(r, 3), s[p].minimum[0], both);
          both = Columns::fma(x.start(r, 4), s[p].minimum[1], both);
        }
        F& into = acc[p * acc_stride + r];
        into = Columns::fma(both, scale, into);
      }
    }
  } else {
    Columns::template dot<P::kDotBits, 0, 8, kPanels, kRows>(w, x, start_of<P, W>(0), sum);
    // The product of the scales does not wait for the sum.
    for (int r = 0; r < kRows; ++r) {
      const F scale = x.scale(r);
      for (int p = 0; p < kPanels; ++p) {
        F& into = acc[p * acc_stride + r];
        if constexpr (P::kZero == 0) into = Columns::fma(x.total(r), s[p].second, into);
        into = Columns::fma(sum[r][p], Columns::mul(scale, s[p].first), into);
      }
    }
  }
}

// Applies scale, bias and accumulation as requested, and writes the valid columns.
[[gnu::always_inline]] inline void write_out(const GemmArgs& args, std::int64_t row, std::int64_t col,
                                             typename Columns::F value) {
  const std::int64_t valid = args.out_cols - col;
  if (valid <= 0) return;
  float* out = args.out + row * args.out_stride + col;
  if (args.scale != 1.0f) value = Columns::mul(value, Columns::set1(args.scale));
  if (valid >= Columns::kLanes) {
    if (args.bias != nullptr) value = Columns::add(value, Columns::load(args.bias + col));
    if (args.accumulate) value = Columns::add(Columns::load(out), value);
    if (args.past_caches) return Columns::store_past_caches(out, value);
    return Columns::store(out, value);
  }
  if (args.bias != nullptr) value = Columns::add(value, Columns::load_partial(args.bias + col, valid));
  if (args.accumulate) value = Columns::add(Columns::load_partial(out, valid), value);
  Columns::store_partial(out, value, valid);
}

// The bytes of all sixteen columns, for levels whose vectors are a quarter of them.
template <class P>
struct WholePanel {
  static constexpr int kShift = 0;
  const std::byte* quants;
  const std::byte* line(int group) const { return quants + 64 * group; }
  typename Columns::B operator()(int column, int group) const {
    return Columns::load_bytes(line(group) + column * kVecBytes);
  }
};

// Weights of a dot product that are multiplied with 2^kShift.
template <int kTimes, class Quants>
struct ShiftedQuants : Quants {
  static constexpr int kShift = kTimes;
};

template <class P>
[[gnu::always_inline]] inline void prefetch_group(const std::byte* quants, const std::byte* meta) {
  for (int line = 0; line < P::kQuantBytes; line += 64)
    __builtin_prefetch(quants + kPrefetch + line);
  __builtin_prefetch(meta + kPrefetchScales);
}

// The first kRows rows of a tile of kTileRows, which is at `first_row`, times kPanels panels; vectors [kVec, kVec +
// kSpan) of each panel.
template <class P, int kRows, int kTileRows, int kPanels, int kVec, int kSpan>
[[gnu::always_inline]] inline void int_block(const GemmArgs& args, std::int64_t panel, std::int64_t first_row) {
  using F = typename Columns::F;
  // Short vectors of one row go together: their weights lie side by side.
  constexpr int kTogether = kRows == 1 && kPanels == 1 && Columns::kLanes == 4 ? kSpan : 1;
  constexpr int kStride = kTogether > 1 ? kRows : kSpan * kRows;  // stride in `acc` between columns or panels
  F acc[kPanels][kSpan][kRows];
  const std::byte* meta[kPanels];
  const std::byte* quants[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    meta[p] = args.weights + static_cast<std::size_t>(panel + p) * args.panel_bytes;
    quants[p] = meta[p] + args.quants_offset;
    for (int v = 0; v < kSpan; ++v) {
      for (int r = 0; r < kRows; ++r)
        acc[p][v][r] = Columns::zero();
    }
  }
  const std::int64_t num_blocks = args.depth / kQuantBlock;
  const ActBlock* x = args.blocks + first_row * num_blocks;
  for (std::int64_t b = 0; b < num_blocks; b += P::kGroups) {
    const std::byte* header[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      header[p] = meta[p];
      meta[p] += P::kHeader;
    }
#pragma GCC unroll 1
    for (int g = 0; g < P::kGroups; ++g) {
      for (int v = 0; v < kSpan; v += kTogether) {
        ScalesOf<P> s[kPanels * kTogether];
        if constexpr (kTogether > 1) {
          load_scales_of<P, kTogether>(header[0], meta[0], 0, s);
        } else {
          for (int p = 0; p < kPanels; ++p)
            s[p] = load_scales<P>(header[p], meta[p], kVec + v);
        }
        if constexpr (kTogether == 4 && P::kBits == 8) {
          accumulate<P, 4, kRows>(&acc[0][0][0], kStride, WholePanel<P>{quants[0]}, s, rows_at<kRows>(x));
        } else {
          const auto quants_of = [&](int c, int group) {
            return quant_group<P>(quants[c / kTogether] + (kVec + v + c % kTogether) * kVecBytes, group);
          };
          const ShiftedQuants<quant_shift<P>(), decltype(quants_of)> shifted{quants_of};
          accumulate<P, kPanels * kTogether, kRows>(&acc[0][v][0], kStride, shifted, s, rows_at<kRows>(x));
        }
      }
      for (int p = 0; p < kPanels; ++p) {
        if (kVec == 0) prefetch_group<P>(quants[p], meta[p]);
        meta[p] += P::kEntry;
        quants[p] += P::kQuantBytes;
      }
      x += kTileRows;
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int v = 0; v < kSpan; ++v) {
      for (int r = 0; r < kRows && first_row + r < args.rows; ++r)
        write_out(args, first_row + r, (panel + p) * kPanelCols + (kVec + v) * Columns::kLanes, acc[p][v][r]);
    }
  }
}

// Each weight vector is read once for all rows, except with eight lanes: there rows take one vector of columns at a
// time to stay in registers.
template <class P, int kRows, int kPanels, int kTileRows = kRows>
void int_rows(const GemmArgs& args, std::int64_t panel, std::int64_t first_row = 0) {
  if constexpr (kRows == 1 || kVecs != 2) {
    int_block<P, kRows, kTileRows, kPanels, 0, kVecs>(args, panel, first_row);
  } else {
    int_block<P, kRows, kTileRows, kPanels, 0, 1>(args, panel, first_row);
    int_block<P, kRows, kTileRows, kPanels, 1, 1>(args, panel, first_row);
  }
}

// Multiplies all rows of an operation that has at most one register block of them.
template <class P, int kRows, int kPanels>
void int_few_rows(const GemmArgs& args, const GemmRange& range) {
  std::int64_t panel = range.panel_begin;
  for (; panel + kPanels <= range.panel_end; panel += kPanels)
    int_rows<P, kRows, kPanels>(args, panel);
  if constexpr (kPanels > 1) {
    for (; panel < range.panel_end; ++panel)
      int_rows<P, kRows, 1>(args, panel);
  }
}

// Puts a block of the row at `at` into its quad, or into its own block. row_blocks: the tile's blocks.
template <class Level = Columns>
[[gnu::always_inline]] inline void put_block(const ActBlock& block, TileRow at, ActBlock* row_blocks) {
  if constexpr (Level::kQuads) {
    if (at.in_quad()) {
      return Level::put(block, static_cast<int>(at.index % 4),
                        *reinterpret_cast<ActQuad*>(row_blocks + at.index / 4 * 4));
    }
  }
  row_blocks[at.index] = block;
}

inline void place_row(const ActBlock* from, std::int64_t num_blocks, TileRow at, ActBlock* tile) {
  const ActBlock zero{};
  const std::int64_t stride = padded_tile_rows(at.rows);
  for (std::int64_t b = 0; b < num_blocks; ++b)
    put_block(from == nullptr ? zero : from[b], at, tile + b * stride);
}

inline void quantize_row(const float* x, std::int64_t depth, TileRow at, ActBlock* tile) {
  const std::int64_t stride = padded_tile_rows(at.rows);
  for (std::int64_t b = 0; b < depth / kQuantBlock; ++b) {
    if constexpr (Columns::kQuads) {
      ActBlock block;
      quantize_block(x + b * kQuantBlock, block);
      put_block(block, at, tile + b * stride);
    } else {
      quantize_block(x + b * kQuantBlock, tile[b * stride + at.index]);
    }
  }
}

}  // namespace
}  // namespace quire
