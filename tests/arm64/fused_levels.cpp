// The list of levels of quire-fused, in place of levels_x86.cpp.
#include <array>

#include "kernels/cpu/cpu_features.h"
#include "tests/kernels/fused_level.h"

namespace quire {
namespace {

const KernelTable* fused_table() {
  return &test::kFusedKernels;
}

constexpr std::array kLevels = {CpuLevel{"fused", fused_table, test::can_run_fused}};

}  // namespace

std::span<const CpuLevel> cpu_levels() {
  return kLevels;
}

}  // namespace quire
