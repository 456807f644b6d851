// Decoding of weights for AMX tiles: a panel is read one tile (32 features of 16 columns) after the other, decoded to
// bf16 in the order of a B tile, and the following weights are prefetched. Any thread. Included by a level file behind
// its Simd wrapper (sixteen lanes) and gemm_int_impl.h; internal linkage. Invariant: a weight is (quant - zero) *
// scale, or quant * scale - minimum by one fused multiply-add, rounded to bf16.
#pragma once

#include "kernels/cpu/products/gemm_int_impl.h"
#include "kernels/cpu/products/nibble_tables_impl.h"
#include "kernels/cpu/products/scaled_pairs_impl.h"

namespace quire {
namespace {

constexpr std::int64_t kTileWeights = kQuantBlock * kPanelCols;

// Types of sixteen bits: BF16 is read in place.
struct TileF16 {
  static constexpr int kQuantBytes = 2 * kTileWeights;
};
struct TileBF16 {
  static constexpr int kQuantBytes = 2 * kTileWeights;
};

// Prefetch distances of weights that are used once, and of those in a block that all rows use.
constexpr int kPrefetchOnce = 4096;
constexpr int kPrefetchBlock = 2048;

inline void decode_f8_tile(const std::byte* header, const std::byte* from, std::byte* out) {
  const typename Simd::F scale = Simd::mul(Simd::load(reinterpret_cast<const float*>(header)), Simd::set1(256.0f));
  for (int pair = 0; pair < kQuantBlock / 2; ++pair, from += 2 * kPanelCols, out += 64) {
    typename Simd::F both[2];
    Simd::load_both_e4m3(octets(from), both);
    Simd::store_bf16_pairs(out, Simd::mul(both[0], scale), Simd::mul(both[1], scale));
  }
}

// Decodes one tile of a quantised type: four-bit codes to rows of columns, others to pairs of features.
template <class P>
[[gnu::always_inline]] inline void decode_tile(const std::byte* header, const std::byte* meta, const std::byte* quants,
                                               std::byte* out) {
  const ScalesOf<P> s = load_scales<P>(header, meta, 0);
  if constexpr (P::kScales == ScaleForm::kFloatZero) {
    decode_nibbles<P>(s.first, Simd::load_u8(octets(header) + 64), quants, out);
  } else if constexpr (P::kByColumn) {
    decode_nibbles<P>(s.first, second_of(s), quants, out);
  } else {
    using Pairs = ScaledPairs<P::kDotBits, P::kZero>;
    const auto pairs_of = [&](int half) {
      const auto scale = P::kHalves && half == 1 ? second_of(s) : s.first;
      if constexpr (P::kScales == ScaleForm::kNibbleHalves) {
        return Pairs(scale, Simd::mul(s.minimum[half], Simd::set1(-32.0f)));
      } else {
        return Pairs(scale, second_of(s));
      }
    };
    const Pairs first = pairs_of(0);
    const Pairs second = pairs_of(P::kHalves ? 1 : 0);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const auto& scaled = i >= 4 ? second : first;
      scaled.store(out + 128 * i, quant_group<P>(quants, i));
    }
  }
}

inline void decode_f16_tile(const std::byte* from, std::byte* out) {
  for (int pair = 0; pair < kQuantBlock / 2; ++pair, from += 64, out += 64)
    Simd::store_bf16_pairs(out, Simd::load_f16(halves(from)), Simd::load_f16(halves(from) + kPanelCols));
}

// Reads a panel from a depth that begins a super-block. `follows` is the panel to be read after this one, or null: its
// beginning is prefetched instead of the memory after this panel's end.
template <class P>
class PanelReader {
 public:
  PanelReader() = default;
  PanelReader(const GemmArgs& args, std::int64_t panel, std::int64_t begin, int ahead, const std::byte* follows) {
    const std::byte* base = args.weights + static_cast<std::size_t>(panel) * args.panel_bytes;
    const std::int64_t block = begin / kQuantBlock;
    meta_ = base;
    if constexpr (kQuantised) meta_ += block / P::kGroups * (P::kHeader + P::kGroups * P::kEntry);
    quants_ = base + args.quants_offset + block * P::kQuantBytes;
    ahead_ = quants_ + ahead / P::kQuantBytes * P::kQuantBytes;
    if (follows == nullptr) return;
    turn_ = base + args.panel_bytes;
    if (ahead_ > turn_) ahead_ = turn_;
    behind_turn_ = follows + args.quants_offset;
    follows_ = follows;
  }

  // Address of the next tile: decoded in `out`, of kTileBytes, or in place.
  const std::byte* next(std::byte* out) {
    ask_ahead();
    const std::byte* quants = quants_;
    quants_ += P::kQuantBytes;
    if constexpr (__is_same(P, TileBF16)) {
      return quants;
    } else if constexpr (__is_same(P, TileF16)) {
      decode_f16_tile(quants, out);
    } else {
      if (group_ == 0) {
        header_ = meta_;
        meta_ += P::kHeader;
      }
      group_ = group_ + 1 == P::kGroups ? 0 : group_ + 1;
      __builtin_prefetch(meta_ + kPrefetchScales);
      if constexpr (P::kScales == ScaleForm::kFloat8) {
        decode_f8_tile(header_, quants, out);
      } else {
        decode_tile<P>(header_, meta_, quants, out);
      }
      meta_ += P::kEntry;
    }
    return out;
  }

 private:
  static constexpr bool kQuantised = !__is_same(P, TileBF16) && !__is_same(P, TileF16);

  void ask_ahead() {
    if (ahead_ == turn_) {
      ahead_ = behind_turn_;
      if (kQuantised) {
        for (int line = 0; line < kPrefetchScales; line += 64)
          __builtin_prefetch(follows_ + line);
      }
    }
    for (int line = 0; line < P::kQuantBytes; line += 64)
      __builtin_prefetch(ahead_ + line);
    ahead_ += P::kQuantBytes;
  }

  const std::byte* header_ = nullptr;
  const std::byte* meta_ = nullptr;
  const std::byte* quants_ = nullptr;
  const std::byte* ahead_ = nullptr;
  const std::byte* turn_ = nullptr;
  const std::byte* behind_turn_ = nullptr;
  const std::byte* follows_ = nullptr;
  int group_ = 0;
};

}  // namespace
}  // namespace quire
