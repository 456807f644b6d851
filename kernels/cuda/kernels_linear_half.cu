#include "kernels/cuda/cuda_kernels.h"

namespace quire::gpu {

void add_linear_half_kernels(std::vector<CudaKernel>& out) {
  visit_linear_half(CudaKernelTable{out});
}

}  // namespace quire::gpu
