#include "kernels/emulated/emulated_kernels.h"

namespace quire::gpu {

void add_linear_wide_kernels(std::vector<EmulatedKernel>& out) {
  visit_linear_wide(EmulatedKernelTable{out});
}

}  // namespace quire::gpu
