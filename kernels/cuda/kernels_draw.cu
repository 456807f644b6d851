#include "kernels/cuda/cuda_kernels.h"

namespace quire::gpu {

void add_draw_kernels(std::vector<CudaKernel>& out) {
  visit_draw(CudaKernelTable{out});
}

}  // namespace quire::gpu
