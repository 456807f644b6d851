#include "kernels/cuda/cuda_kernels.h"

namespace quire::gpu {

void add_row_kernels(std::vector<CudaKernel>& out) {
  visit_rows(CudaKernelTable{out});
}

}  // namespace quire::gpu
