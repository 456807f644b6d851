// Fills the KernelTable of the level whose Simd wrapper was included before. Internal linkage; any thread.
#pragma once

#include "kernels/cpu/attend_row_impl.h"
#include "kernels/cpu/gemm_float_impl.h"
#include "kernels/cpu/gemm_int_rows_impl.h"
#include "kernels/cpu/rates_impl.h"
#include "kernels/cpu/recurrent_impl.h"

namespace quire {
namespace {

constexpr KernelTable make_table(const char* name) {
  return KernelTable{
      .name = name,
      .rates = rate_table(),
      .activation = {Activation::kFloats, Activation::kFloats, Activation::kFloats, Activation::kBlocks,
                     Activation::kBlocks, Activation::kBlocks, Activation::kBlocks, Activation::kBlocks,
                     Activation::kBlocks, Activation::kBlocks, Activation::kBlocks},
      .nibbles = NibbleOrder::kByFeature,
      .gemm_scratch = rows_scratch_bytes,
      .quantize_row = quantize_row,
      .spread_row = spread_row,
      .round_row = nullptr,
      .turn_rows = nullptr,
      // In the order of DType.
      .gemm = {gemm_float<WeightF32>, gemm_float<WeightF16>, gemm_float<WeightBF16>, gemm_int<PackedQ80>,
               gemm_int<PackedQ40>, gemm_int<PackedQ41>, gemm_int<PackedQ50>, gemm_int<PackedQ51>, gemm_int<PackedQ4K>,
               gemm_int<PackedQ5K>, gemm_int<PackedQ6K>},
      .rms_norm = rms_norm,
      .swiglu = swiglu,
      .rope_half = rope_half,
      .rope_interleaved = rope_interleaved,
      .store_key = store_key,
      .store_value = store_value,
      .query_tile = kQueryTile,
      .tiles_together = 1,
      .attend_scratch = attend_scratch,
      .pack_queries = pack_queries,
      .attend = attend,
      .merge = merge,
      .finish = finish,
      .attend_row = attend_row,
      .recurrent = recurrent_table(),
  };
}

}  // namespace
}  // namespace quire
