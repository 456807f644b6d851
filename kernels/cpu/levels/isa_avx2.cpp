// The avx2 level.
#include "kernels/cpu/simd/simd_avx2.h"

#include "kernels/cpu/levels/isa_levels.h"
#include "kernels/cpu/levels/isa_table.h"

namespace quire {

const KernelTable kAvx2Kernels = make_table("avx2");

}  // namespace quire
