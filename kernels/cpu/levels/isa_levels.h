// The tables of the ISA levels, defined in isa_<level>.cpp; each may be used only if cpu_features allows it, and those
// of another architecture are not linked. Immutable facts; any thread. Included by the level files: no containers here.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace quire {

// Kernels of a level that differ from the level below it. A null kernel is that level's.
struct LevelAdditions {
  const char* name;
  RateTable rates;
  PanelForm panel_form;
  std::size_t (*gemm_scratch)();
  void (*round_row)(const RowOfMany& x, std::uint16_t* out);
  void (*turn_rows)(const RowOfMany& first, const std::uint16_t* halves, std::uint16_t* pairs);
  Activation activation[kNumWeightTypes];  // read where `gemm` is not null
  void (*gemm[kNumWeightTypes])(const GemmArgs& args, const GemmRange& range, std::byte* scratch);
  AttendKernel attend;
};

KernelTable with_additions(const KernelTable& below, const LevelAdditions& added);

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvxVnniKernels;  // the avx2 level on processors with AVX-VNNI
extern const KernelTable kAvx512Kernels;
// Additions to the avx512 level.
extern const LevelAdditions kAvx512Bf16Additions;
extern const LevelAdditions kAvx512AmxAdditions;
extern const LevelAdditions kAmxAdditions;
// The AMX levels' over emulated tiles, to the scalar level and to avx512: only tests use them.
extern const LevelAdditions kAmxEmulatedAdditions;
extern const LevelAdditions kAvx512AmxEmulatedAdditions;
extern const LevelAdditions kAmxEmulatedAvx512Additions;
// Levels of arm64.
extern const KernelTable kNeonKernels;
extern const KernelTable kDotprodKernels;
extern const KernelTable kI8mmKernels;

}  // namespace quire
