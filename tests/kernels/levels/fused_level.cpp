#include "tests/kernels/levels/fused_level.h"

#define QUIRE_FUSED
#include "kernels/cpu/simd/simd_scalar.h"

#include "kernels/cpu/levels/isa_table.h"

namespace quire::test {

const KernelTable kFusedKernels = make_table("fused");

bool can_run_fused() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

}  // namespace quire::test
