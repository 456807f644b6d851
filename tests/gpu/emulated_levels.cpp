// The backends of the operation tests in this program: the GPU backend on the emulated device.
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "tests/kernels/levels/level_backends.h"

namespace quire::test {

// The host's threads cut no operation of a device.
std::vector<int> thread_counts() {
  return {1};
}

std::vector<LevelBackend> level_backends(int threads) {
  // Operations run when they are enqueued: the tests look at results without waiting.
  gpu::EmulatedDeviceOptions device;
  device.immediate = true;
  std::vector<LevelBackend> out;
  out.push_back(
      {"cuda-emulated", gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(device),
                                              {.name = "cuda-emulated", .threads = threads, .graphs = false})});
  return out;
}

}  // namespace quire::test
