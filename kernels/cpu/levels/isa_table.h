// Fills the KernelTable of the level whose Simd wrapper was included before. Internal linkage; any thread.
#pragma once

#include "kernels/cpu/attention/attention_impl.h"
#include "kernels/cpu/attention/store_kv_impl.h"
#include "kernels/cpu/coded_types.h"
#include "kernels/cpu/products/gemm_float_impl.h"
#include "kernels/cpu/products/gemm_int_rows_impl.h"
#include "kernels/cpu/products/rates_impl.h"
#include "kernels/cpu/rows/recurrent_impl.h"

namespace quire {
namespace {

// The product of every type.
constexpr void set_products(KernelTable& table) {
  constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8};
  for (const DType type : kFloatTypes)
    table.activation[index_of(type)] = Activation::kFloats;
  table.gemm[index_of(DType::kF32)] = gemm_float<WeightF32>;
  table.gemm[index_of(DType::kF16)] = gemm_float<WeightF16>;
  table.gemm[index_of(DType::kBF16)] = gemm_float<WeightBF16>;
  table.gemm[index_of(DType::kF8)] = gemm_float<WeightF8>;
  each_coded_type([&]<DType kType>() {
    table.activation[index_of(kType)] = Activation::kBlocks;
    table.gemm[index_of(kType)] = gemm_int<Packed<form_type(kType)>>;
  });
}

constexpr KernelTable make_table(const char* name) {
  KernelTable table{
      .name = name,
      .rates = rate_table(),
      .activation = {},
      .panel_form = Columns::kSignedCodes ? PanelForm::kSignedCodes : PanelForm::kByFeature,
      .gemm_scratch = rows_scratch_bytes,
      .quantize_row = quantize_row,
      .place_row = place_row,
      .spread_row = spread_row,
      .round_row = nullptr,
      .turn_rows = nullptr,
      .gemm = {},
      .rms_norm = rms_norm,
      .swiglu = swiglu,
      .activate = activate,
      .layer_norm = layer_norm,
      .softcap = softcap,
      .add_scaled = add_scaled,
      .scale = scale,
      .rope_half = rope_half,
      .rope_interleaved = rope_interleaved,
      .store_key = store_key,
      .store_value = store_value,
      .attend = attend_kernel(),
      .attend_masked = attend_kernel(),
      .merge = merge,
      .finish = finish,
      .recurrent = recurrent_table(),
  };
  set_products(table);
  return table;
}

}  // namespace
}  // namespace quire
