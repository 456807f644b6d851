// The ISA levels of x86-64.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/isa_levels.h"

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

// Returns whether the bf16 dot product beats f32: AMD's runs at twice the rate of f32, Intel's at half of it.
bool has_fast_bf16() {
  return has_avx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
}

// XCR0: the register state that the kernel saves and restores. Needs OSXSAVE, which AVX implies.
unsigned saved_state() {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Requires tiles and their products in the processor, tile state enabled by the kernel, and its permission for this
// process: Linux grants it on request, once for all threads, running ones too; if it is refused (an older kernel, a
// filter of system calls, an alternate signal stack too small for tiles) the level is not supported
// (Documentation/arch/x86/xstate.rst).
bool has_amx() {
  if (!has_avx512() || !__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vbmi")) return false;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kInstructions = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  constexpr unsigned kTileState = 1u << 17 | 1u << 18;                // TILECFG, TILEDATA
  if ((edx & kInstructions) != kInstructions || (saved_state() & kTileState) != kTileState) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

const KernelTable* scalar_table() {
  return &kScalarKernels;
}

// AVX-VNNI: the integer dot product on 256 bits. Integer sums are exact, so the results are the same.
const KernelTable* avx2_table() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool known = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0;
  return known && (eax & (1u << 4)) != 0 ? &kAvxVnniKernels : &kAvx2Kernels;
}

const KernelTable* avx512_table() {
  return &kAvx512Kernels;
}

const KernelTable* avx512bf16_table() {
  static const KernelTable kTable = with_additions(kAvx512Kernels, kAvx512Bf16Additions);
  return &kTable;
}

const KernelTable* avx512amx_table() {
  static const KernelTable kTable = with_additions(kAvx512Kernels, kAvx512AmxAdditions);
  return &kTable;
}

const KernelTable* amx_table() {
  static const KernelTable kTable = with_additions(kAvx512Kernels, kAmxAdditions);
  return &kTable;
}

constexpr std::array kLevels = {
    CpuLevel{"scalar", scalar_table, always},     CpuLevel{"avx2", avx2_table, has_avx2},
    CpuLevel{"avx512", avx512_table, has_avx512}, CpuLevel{"avx512bf16", avx512bf16_table, has_fast_bf16},
    CpuLevel{"amx", amx_table, has_amx},          CpuLevel{"avx512amx", avx512amx_table, has_amx},
};

}  // namespace

KernelTable with_additions(const KernelTable& below, const LevelAdditions& added) {
  KernelTable out = below;
  out.name = added.name;
  out.rates = added.rates;
  out.panel_form = added.panel_form;
  if (added.gemm_scratch != nullptr) out.gemm_scratch = added.gemm_scratch;
  out.round_row = added.round_row;
  out.turn_rows = added.turn_rows;
  for (int type = 0; type < kNumWeightTypes; ++type) {
    if (added.gemm[type] == nullptr) continue;
    out.activation[type] = added.activation[type];
    out.gemm[type] = added.gemm[type];
  }
  if (added.attend.run != nullptr) out.attend = added.attend;
  return out;
}

std::span<const CpuLevel> cpu_levels() {
  return kLevels;
}

}  // namespace quire
