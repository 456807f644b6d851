// The neon level: any arm64 processor.
#include "kernels/cpu/simd_neon.h"

#include "kernels/cpu/isa_levels.h"
#include "kernels/cpu/isa_table.h"

namespace quire {

const KernelTable kNeonKernels = make_table("neon");

}  // namespace quire
