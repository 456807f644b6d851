// The avx512 level.
#include "kernels/cpu/simd/simd_avx512.h"

#include "kernels/cpu/levels/isa_levels.h"
#include "kernels/cpu/levels/isa_table.h"

namespace quire {

const KernelTable kAvx512Kernels = make_table("avx512");

}  // namespace quire
