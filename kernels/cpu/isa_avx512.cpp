// The avx512 level.
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/isa_levels.h"
#include "kernels/cpu/isa_table.h"

namespace quire {

const KernelTable kAvx512Kernels = make_table("avx512");

}  // namespace quire
