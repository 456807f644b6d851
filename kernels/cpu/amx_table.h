// Fills the KernelTable of the AMX level over a Simd wrapper of sixteen lanes and one implementation of the tiles.
// Internal linkage; any thread. F32 weights would lose precision as bf16, so they keep the vector kernels.
#pragma once

#include "kernels/cpu/amx_attention_impl.h"
#include "kernels/cpu/amx_gemm_impl.h"
#include "kernels/cpu/isa_table.h"

namespace quire {
namespace {

// Two blocks of decoded weights, and the sums of a block of outputs.
inline std::size_t amx_scratch() {
  return static_cast<std::size_t>(2 * kBlockBytes) +
         static_cast<std::size_t>(kBlockPanels / 2 * kBlockTiles * kPairSums) * sizeof(float);
}

template <class Tiles, class LeftTiles>
constexpr KernelTable make_amx_table(const char* name) {
  KernelTable table = make_table(name);
  table.gemm_scratch = amx_scratch;
  table.round_row = round_row_in_blocks;
  table.turn_rows = turn_rows_in_blocks;
  table.panel_form = PanelForm::kNibblesByColumn;
  constexpr DType kFloatTypes[] = {DType::kF16, DType::kBF16, DType::kF8};
  for (const DType type : kFloatTypes)
    table.activation[index_of(type)] = Activation::kHalves;
  table.gemm[index_of(DType::kF16)] = gemm_amx<TileF16, Tiles>;
  table.gemm[index_of(DType::kBF16)] = gemm_amx<TileBF16, Tiles>;
  table.gemm[index_of(DType::kF8)] = gemm_amx<Packed<DType::kF8>, Tiles>;
  each_coded_type([&]<DType kType>() {
    using P = Packed<form_type(kType)>;
    table.activation[index_of(kType)] = P::kByColumn ? Activation::kPairs : Activation::kHalves;
    if constexpr (P::kByColumn) {
      table.gemm[index_of(kType)] = gemm_amx<P, LeftTiles>;
    } else {
      table.gemm[index_of(kType)] = gemm_amx<P, Tiles>;
    }
  });
  table.attend = {.query_tile = kMaxQueryTile,
                  .tiles_together = kTilesTogether,
                  .scratch = tile_attention_scratch,
                  .pack_queries = pack_split_queries,
                  .pack_int4_queries = nullptr,  // attend_masked takes it
                  .run = attend_amx<Tiles>};
  return table;
}

}  // namespace
}  // namespace quire
