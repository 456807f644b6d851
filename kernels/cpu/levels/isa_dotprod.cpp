// The dotprod level: integer dot products by SDOT (armv8.2-a).
#include "kernels/cpu/simd/simd_neon.h"

#include "kernels/cpu/levels/isa_levels.h"
#include "kernels/cpu/levels/isa_table.h"

namespace quire {

const KernelTable kDotprodKernels = make_table("dotprod");

}  // namespace quire
