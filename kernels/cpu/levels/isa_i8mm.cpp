// The i8mm level: integer dot products of unsigned weights by USDOT (armv8.6-a).
#include "kernels/cpu/simd/simd_neon.h"

#include "kernels/cpu/levels/isa_levels.h"
#include "kernels/cpu/levels/isa_table.h"

namespace quire {

const KernelTable kI8mmKernels = make_table("i8mm");

}  // namespace quire
