// The AMX level's table as the processor would have it, and over tiles emulated in C++, which run anywhere and on
// AVX-512. Immutable facts; any thread.
#pragma once

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/isa_levels.h"

namespace quire::test {

inline const KernelTable& amx_kernels() {
  return *cpu_levels().back().table();
}

inline const KernelTable& amx_emulated_kernels() {
  static const KernelTable kTable = with_additions(kScalarKernels, kAmxEmulatedAdditions);
  return kTable;
}

inline const KernelTable& amx_emulated_avx512_kernels() {
  static const KernelTable kTable = with_additions(kAvx512Kernels, kAmxEmulatedAvx512Additions);
  return kTable;
}

}  // namespace quire::test
