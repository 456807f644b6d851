// The ISA levels of arm64. All have the bits of each other and of the x86 level avx512.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <array>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/isa_levels.h"

namespace quire {
namespace {

bool always() {
  return true;
}

// The kernel reports features that the processor has and it supports (Documentation/arch/arm64/elf_hwcaps.rst).
bool has_dotprod() {
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

bool has_i8mm() {
  return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

const KernelTable* scalar_table() {
  return &kScalarKernels;
}

const KernelTable* neon_table() {
  return &kNeonKernels;
}

const KernelTable* dotprod_table() {
  return &kDotprodKernels;
}

const KernelTable* i8mm_table() {
  return &kI8mmKernels;
}

constexpr std::array kLevels = {
    CpuLevel{"scalar", scalar_table, always},
    CpuLevel{"neon", neon_table, always},  // included in every arm64 processor that runs Linux
    CpuLevel{"dotprod", dotprod_table, has_dotprod},
    CpuLevel{"i8mm", i8mm_table, has_i8mm},
};

}  // namespace

std::span<const CpuLevel> cpu_levels() {
  return kLevels;
}

}  // namespace quire
