// The scalar level: any x86-64, and the reference that the others are read against.
#include "kernels/cpu/simd/simd_scalar.h"

#include "kernels/cpu/levels/isa_levels.h"
#include "kernels/cpu/levels/isa_table.h"

namespace quire {

const KernelTable kScalarKernels = make_table("scalar");

}  // namespace quire
