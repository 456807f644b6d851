#include "kernels/cuda/cuda_kernels.h"

namespace quire::gpu {

void add_recurrent_kernels(std::vector<CudaKernel>& out) {
  visit_recurrent(CudaKernelTable{out});
}

}  // namespace quire::gpu
