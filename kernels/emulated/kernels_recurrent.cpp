#include "kernels/emulated/emulated_kernels.h"

namespace quire::gpu {

void add_recurrent_kernels(std::vector<EmulatedKernel>& out) {
  visit_recurrent(EmulatedKernelTable{out});
}

}  // namespace quire::gpu
