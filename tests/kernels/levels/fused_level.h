// The scalar level with fused multiply-adds: the bits of the levels avx512, neon, dotprod and i8mm, on x86-64 and on
// arm64 alike, without their instructions. Needs FMA. Immutable facts; any thread.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace quire::test {

extern const KernelTable kFusedKernels;

bool can_run_fused();

}  // namespace quire::test
