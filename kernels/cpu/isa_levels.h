// The tables of the ISA levels, defined in isa_<level>.cpp; each may be used only where cpu_features says so, and those
// of another architecture are not linked. Immutable facts; any thread. Included by the level files: no containers here.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace quire {

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvxVnniKernels;  // the avx2 level where there is AVX-VNNI
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;
extern const KernelTable kAmxKernels;
// The AMX level's kernels over emulated tiles: only tests use them.
extern const KernelTable kAmxEmulatedKernels;
extern const KernelTable kAmxEmulatedAvx512Kernels;
// Of arm64.
extern const KernelTable kNeonKernels;
extern const KernelTable kDotprodKernels;
extern const KernelTable kI8mmKernels;

}  // namespace quire
