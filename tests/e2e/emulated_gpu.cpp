// What quire-emulated is linked with instead of kernels/no_gpu.cpp: every machine has one GPU, an emulated one. Results
// come as late as from a GPU, in memory that was poisoned until then. QUIRE_EMULATED_SEED: another order of threads,
// blocks and streams. QUIRE_EMULATED_FAILURE: the number of the kernel launch that fails, from which on all do.
#include <cstdlib>

#include "kernels/device_error.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu_devices.h"

namespace quire {
namespace {

constexpr std::uint64_t kForModels = std::uint64_t{640} << 20;
constexpr std::uint64_t kBeside = std::uint64_t{512} << 20;  // what a plan does not count

int number_of(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

}  // namespace

GpuProbe probe_gpu(const GpuOptions& options) {
  if (options.number > 0) return {.memory = {}, .absent = "this machine has one GPU, an emulated one"};
  return {.memory = BackendMemory{"GPU 0 (emulated)", kForModels}, .absent = {}};
}

std::unique_ptr<Backend> open_gpu(const GpuOptions& options) {
  const GpuProbe probe = probe_gpu(options);
  if (!probe.memory) throw DeviceError(probe.absent);
  const gpu::EmulatedDeviceOptions device{
      .seed = static_cast<std::uint64_t>(number_of("QUIRE_EMULATED_SEED", 0)),
      .memory = kForModels + kBeside,
      .failing_launch = number_of("QUIRE_EMULATED_FAILURE", -1),
  };
  return gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(device),
                               {.name = "cuda-emulated", .threads = options.threads, .graphs = options.graphs});
}

}  // namespace quire
