#include "kernels/cpu/cpu_features.h"

#include <array>

#include "kernels/cpu/isa_levels.h"

namespace quire {
namespace {

bool always() {
  return true;
}

// __builtin_cpu_supports also asks the operating system (XCR0) whether it saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

constexpr std::array kLevels = {
    CpuLevel{"scalar", &kScalarKernels, always},
    CpuLevel{"avx2", &kAvx2Kernels, has_avx2},
    CpuLevel{"avx512", &kAvx512Kernels, has_avx512},
};

}  // namespace

std::span<const CpuLevel> cpu_levels() {
  return kLevels;
}

}  // namespace quire
