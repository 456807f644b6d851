// The kernels compiled by nvcc, as the runtime launches them: lists that the device is made with. Read by g++ too.
// Immutable facts; any thread.
#pragma once

#include <vector>

#include "kernels/gpu/device/device.h"

namespace quire::gpu {

struct CudaKernel : Kernel {
  const void* function = nullptr;
};

void add_linear_skinny_kernels(std::vector<CudaKernel>& out);
void add_linear_wide_kernels(std::vector<CudaKernel>& out);
void add_linear_half_kernels(std::vector<CudaKernel>& out);
void add_row_kernels(std::vector<CudaKernel>& out);
void add_attention_kernels(std::vector<CudaKernel>& out);
void add_draw_kernels(std::vector<CudaKernel>& out);
void add_recurrent_kernels(std::vector<CudaKernel>& out);
void add_attention_tile_kernels(std::vector<CudaKernel>& out);

}  // namespace quire::gpu
