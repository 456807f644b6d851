// The avx2 level on processors with AVX-VNNI: the same bits, fewer instructions.
#include "kernels/cpu/simd/simd_avx2.h"

#include "kernels/cpu/levels/isa_levels.h"
#include "kernels/cpu/levels/isa_table.h"

namespace quire {

const KernelTable kAvxVnniKernels = make_table("avx2");

}  // namespace quire
