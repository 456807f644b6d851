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
  table.nibbles = NibbleOrder::kByColumn;
  for (int type = 1; type < kNumWeightTypes; ++type)
    table.activation[type] = Activation::kHalves;
  table.activation[4] = table.activation[5] = table.activation[8] = Activation::kPairs;
  table.gemm[1] = gemm_amx<TileF16, Tiles>;
  table.gemm[2] = gemm_amx<TileBF16, Tiles>;
  table.gemm[3] = gemm_amx<PackedQ80, Tiles>;
  table.gemm[4] = gemm_amx<PackedQ40, LeftTiles>;
  table.gemm[5] = gemm_amx<PackedQ41, LeftTiles>;
  table.gemm[6] = gemm_amx<PackedQ50, Tiles>;
  table.gemm[7] = gemm_amx<PackedQ51, Tiles>;
  table.gemm[8] = gemm_amx<PackedQ4K, LeftTiles>;
  table.gemm[9] = gemm_amx<PackedQ5K, Tiles>;
  table.gemm[10] = gemm_amx<PackedQ6K, Tiles>;
  table.query_tile = kMaxQueryTile;
  table.tiles_together = kTilesTogether;
  table.attend_scratch = tile_attention_scratch;
  table.pack_queries = pack_split_queries;
  table.attend = attend_amx<Tiles>;
  return table;
}

}  // namespace
}  // namespace quire
