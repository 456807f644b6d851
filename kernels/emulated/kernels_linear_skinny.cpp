#include "kernels/emulated/emulated_kernels.h"

namespace quire::gpu {

void add_linear_skinny_kernels(std::vector<EmulatedKernel>& out) {
  visit_linear_skinny(EmulatedKernelTable{out});
}

}  // namespace quire::gpu
