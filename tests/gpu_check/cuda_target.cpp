#include "kernels/cuda/cuda_device.h"
#include "tests/gpu_check/target.h"

namespace quire::test {

std::unique_ptr<gpu::Device> target_device() {
  return std::make_unique<gpu::CudaDevice>(0);
}

}  // namespace quire::test
