// A device whose threads, blocks and streams have another order than the compared one's.
#include "kernels/emulated/emulated_device.h"
#include "tests/gpu_check/target.h"

namespace quire::test {

std::unique_ptr<gpu::Device> target_device() {
  return std::make_unique<gpu::EmulatedDevice>(gpu::EmulatedDeviceOptions{.seed = 5});
}

}  // namespace quire::test
