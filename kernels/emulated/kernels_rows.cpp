#include "kernels/emulated/emulated_kernels.h"

namespace quire::gpu {

void add_row_kernels(std::vector<EmulatedKernel>& out) {
  visit_rows(EmulatedKernelTable{out});
}

}  // namespace quire::gpu
