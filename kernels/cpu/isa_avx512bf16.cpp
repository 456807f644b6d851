// The avx512bf16 level: BF16 weights meet activations rounded to bf16, all else as on avx512.
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/gemm_bf16_impl.h"
#include "kernels/cpu/isa_levels.h"
#include "kernels/cpu/isa_table.h"

namespace quire {
namespace {

constexpr KernelTable make_bf16_table() {
  KernelTable table = make_table("avx512bf16");
  table.activation[index_of(DType::kBF16)] = Activation::kHalves;
  table.gemm[index_of(DType::kBF16)] = gemm_bf16;
  table.round_row = round_row;
  return table;
}

}  // namespace

const KernelTable kAvx512Bf16Kernels = make_bf16_table();

}  // namespace quire
