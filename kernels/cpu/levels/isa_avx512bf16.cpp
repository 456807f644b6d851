// The avx512bf16 level: BF16 weights meet activations rounded to bf16, all else as on avx512.
#include "kernels/cpu/simd/simd_avx512.h"

#include "kernels/cpu/coded_types.h"
#include "kernels/cpu/levels/isa_levels.h"
#include "kernels/cpu/products/gemm_bf16_impl.h"
#include "kernels/cpu/products/rates_impl.h"

namespace quire {
namespace {

constexpr LevelAdditions make_bf16_additions() {
  LevelAdditions out{};
  out.name = "avx512bf16";
  out.rates = rate_table();
  out.panel_form = PanelForm::kByFeature;
  out.round_row = round_row;
  out.activation[index_of(DType::kBF16)] = Activation::kHalves;
  out.gemm[index_of(DType::kBF16)] = gemm_bf16;
  return out;
}

}  // namespace

const LevelAdditions kAvx512Bf16Additions = make_bf16_additions();

}  // namespace quire
