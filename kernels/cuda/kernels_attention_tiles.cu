#include "kernels/cuda/cuda_kernels.h"

namespace quire::gpu {

void add_attention_tile_kernels(std::vector<CudaKernel>& out) {
  visit_attention_tiles(CudaKernelTable{out});
}

}  // namespace quire::gpu
