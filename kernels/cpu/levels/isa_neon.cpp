// The neon level: any arm64 processor.
#include "kernels/cpu/simd/simd_neon.h"

#include "kernels/cpu/levels/isa_levels.h"
#include "kernels/cpu/levels/isa_table.h"

namespace quire {

const KernelTable kNeonKernels = make_table("neon");

}  // namespace quire
