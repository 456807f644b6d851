#include "kernels/cuda/cuda_kernels.h"

namespace quire::gpu {

void add_attention_kernels(std::vector<CudaKernel>& out) {
  visit_attention(CudaKernelTable{out});
}

}  // namespace quire::gpu
