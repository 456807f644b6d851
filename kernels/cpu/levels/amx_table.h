// Kernels that the AMX levels add to the level of a Simd wrapper of sixteen lanes, over one implementation of the
// tiles. Internal linkage; any thread. F32 weights would lose precision as bf16, so they keep the vector kernels.
#pragma once

#include "kernels/cpu/attention/amx_attention_impl.h"
#include "kernels/cpu/coded_types.h"
#include "kernels/cpu/levels/isa_levels.h"
#include "kernels/cpu/products/amx_gemm_impl.h"
#include "kernels/cpu/products/gemm_int_rows_impl.h"
#include "kernels/cpu/products/rates_impl.h"

namespace quire {
namespace {

// Two blocks of decoded weights, and the sums of a block of outputs; as much as the products of the level below need.
inline std::size_t amx_scratch() {
  constexpr std::size_t kBytes = static_cast<std::size_t>(2 * kBlockBytes) +
                                 static_cast<std::size_t>(kBlockPanels / 2 * kBlockTiles * kPairSums) * sizeof(float);
  static_assert(kBytes >= sizeof(RowsScratch<Packed<DType::kQ2_K>>));
  return kBytes;
}

// Products of weights of sixteen bits and of float8 on tiles. Quantised weights and attention keep the vectors of the
// level below: decoding to bf16 halves the speed of few rows (tests/bench/README.md).
template <class Tiles>
constexpr LevelAdditions make_avx512amx_additions() {
  LevelAdditions out{};
  out.name = "avx512amx";
  out.rates = rate_table();
  out.gemm_scratch = amx_scratch;
  out.round_row = round_row_in_blocks;
  out.panel_form = PanelForm::kByFeature;
  constexpr DType kFloatTypes[] = {DType::kF16, DType::kBF16, DType::kF8};
  for (const DType type : kFloatTypes)
    out.activation[index_of(type)] = Activation::kHalves;
  out.gemm[index_of(DType::kF16)] = gemm_amx<TileF16, Tiles>;
  out.gemm[index_of(DType::kBF16)] = gemm_amx<TileBF16, Tiles>;
  out.gemm[index_of(DType::kF8)] = gemm_amx<Packed<DType::kF8>, Tiles>;
  return out;
}

// Quantised weights and attention on tiles too.
template <class Tiles, class LeftTiles>
constexpr LevelAdditions make_amx_additions() {
  LevelAdditions out = make_avx512amx_additions<Tiles>();
  out.name = "amx";
  out.turn_rows = turn_rows_in_blocks;
  out.panel_form = PanelForm::kNibblesByColumn;
  each_coded_type([&]<DType kType>() {
    using P = Packed<form_type(kType)>;
    out.activation[index_of(kType)] = P::kByColumn ? Activation::kPairs : Activation::kHalves;
    if constexpr (P::kByColumn) {
      out.gemm[index_of(kType)] = gemm_amx<P, LeftTiles>;
    } else {
      out.gemm[index_of(kType)] = gemm_amx<P, Tiles>;
    }
  });
  out.attend = {.query_tile = kMaxQueryTile,
                .tiles_together = kTilesTogether,
                .scratch = tile_attention_scratch,
                .pack_queries = pack_split_queries,
                .pack_int4_queries = nullptr,  // attend_masked handles it
                .run = attend_amx<Tiles>};
  return out;
}

}  // namespace
}  // namespace quire
