#include "kernels/cuda/cuda_kernels.h"

namespace quire::gpu {

void add_linear_wide_kernels(std::vector<CudaKernel>& out) {
  visit_linear_wide(CudaKernelTable{out});
}

}  // namespace quire::gpu
