#include "kernels/emulated/emulated_kernels.h"

namespace quire::gpu {

void add_draw_kernels(std::vector<EmulatedKernel>& out) {
  visit_draw(EmulatedKernelTable{out});
}

}  // namespace quire::gpu
