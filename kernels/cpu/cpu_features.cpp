#include "kernels/cpu/cpu_features.h"

#include <array>

#include "kernels/cpu/isa_levels.h"

namespace quire {
namespace {

bool always() { return true; }

constexpr std::array kLevels = {
    CpuLevel{"scalar", &kScalarKernels, always},
};

}  // namespace

std::span<const CpuLevel> cpu_levels() { return kLevels; }

}  // namespace quire
