#include "kernels/cuda/cuda_kernels.h"

namespace quire::gpu {

void add_linear_skinny_kernels(std::vector<CudaKernel>& out) {
  visit_linear_skinny(CudaKernelTable{out});
}

}  // namespace quire::gpu
