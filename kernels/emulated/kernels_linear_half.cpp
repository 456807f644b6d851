#include "kernels/emulated/emulated_kernels.h"

namespace quire::gpu {

void add_linear_half_kernels(std::vector<EmulatedKernel>& out) {
  visit_linear_half(EmulatedKernelTable{out});
}

}  // namespace quire::gpu
