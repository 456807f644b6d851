// The tables of the AMX levels as the processor would have them, and over tiles emulated in C++, which run anywhere and
// on AVX-512. Immutable facts; any thread.
#pragma once

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/isa_levels.h"

namespace quire::test {

inline const KernelTable& amx_kernels() {
  const auto levels = cpu_levels();
  return *std::ranges::find(levels, "amx", &CpuLevel::name)->table();
}

inline const KernelTable& amx_emulated_kernels() {
  static const KernelTable kTable = with_additions(kScalarKernels, kAmxEmulatedAdditions);
  return kTable;
}

inline const KernelTable& avx512amx_emulated_kernels() {
  static const KernelTable kTable = with_additions(kAvx512Kernels, kAvx512AmxEmulatedAdditions);
  return kTable;
}

inline const KernelTable& amx_emulated_avx512_kernels() {
  static const KernelTable kTable = with_additions(kAvx512Kernels, kAmxEmulatedAvx512Additions);
  return kTable;
}

}  // namespace quire::test
