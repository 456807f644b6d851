#include "kernels/cpu/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "kernels/cpu/isa_levels.h"

namespace quire {
namespace {

bool always() {
  return true;
}

bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}

// __builtin_cpu_supports also asks the operating system (XCR0) whether it saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

// Tiles and their bf16 product in the processor, tile state enabled by the kernel, and its permission for this process:
// Linux grants it on request, once for all threads (Documentation/arch/x86/xstate.rst).
bool has_amx() {
  if (!has_avx512() || !__builtin_cpu_supports("avx512bf16")) return false;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22;
  constexpr unsigned kTiles = 1u << 24;
  if ((edx & kBf16) == 0 || (edx & kTiles) == 0) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

constexpr std::array kLevels = {
    CpuLevel{"scalar", &kScalarKernels, always},
    CpuLevel{"avx2", &kAvx2Kernels, has_avx2},
    CpuLevel{"avx512", &kAvx512Kernels, has_avx512},
    CpuLevel{"amx", &kAmxKernels, has_amx},
};

}  // namespace

std::span<const CpuLevel> cpu_levels() {
  return kLevels;
}

}  // namespace quire
