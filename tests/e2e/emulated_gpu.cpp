// quire-emulated links this file instead of kernels/no_gpu.cpp: every machine has one emulated GPU, or
// QUIRE_EMULATED_DEVICES of them. Results come as late as from a GPU, in memory that is poisoned until then.
// QUIRE_EMULATED_SEED: another order of threads, blocks and streams. QUIRE_EMULATED_FAILURE: number of the first kernel
// launch of the last GPU that fails; all later ones fail too. QUIRE_EMULATED_MEMORY: MiB for models.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device_error.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/ranks/gpu_ranks.h"
#include "kernels/gpu_devices.h"

namespace quire {
namespace {

constexpr int kMebibytesForModels = 640;
constexpr std::uint64_t kBeside = std::uint64_t{512} << 20;  // memory that the plan does not count

int number_of(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

std::uint64_t memory_for_models() {
  return static_cast<std::uint64_t>(number_of("QUIRE_EMULATED_MEMORY", kMebibytesForModels)) << 20;
}

std::string label_of(int number) {
  return "GPU " + std::to_string(number) + " (emulated)";
}

}  // namespace

GpuProbe probe_gpu(const GpuOptions& options) {
  const int num_devices = number_of("QUIRE_EMULATED_DEVICES", 1);
  if (options.number >= num_devices) {
    const std::string has =
        num_devices == 1 ? "one GPU, an emulated one" : std::to_string(num_devices) + " emulated GPUs";
    return {.memory = {}, .absent = "this machine has " + has};
  }
  return {.memory = BackendMemory{label_of(options.number), memory_for_models()}, .absent = {}};
}

std::unique_ptr<Backend> open_gpu(const GpuOptions& options) {
  const GpuProbe probe = probe_gpu(options);
  if (!probe.memory) throw DeviceError(probe.absent);
  const gpu::GpuBackendOptions backend{.name = "cuda-emulated", .threads = options.threads, .graphs = options.graphs};
  gpu::EmulatedDeviceOptions device{
      .seed = static_cast<std::uint64_t>(number_of("QUIRE_EMULATED_SEED", 0)),
      .memory = memory_for_models() + kBeside,
  };
  const int failing_launch = number_of("QUIRE_EMULATED_FAILURE", -1);
  if (options.count == 1) {
    device.failing_launch = failing_launch;
    return gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(device), backend);
  }
  device.machine = std::make_shared<gpu::EmulatedMachine>();
  std::vector<std::unique_ptr<gpu::Device>> devices;
  for (int rank = 0; rank < options.count; ++rank) {
    device.label = label_of(options.number + rank);
    device.failing_launch = rank == options.count - 1 ? failing_launch : -1;
    devices.push_back(std::make_unique<gpu::EmulatedDevice>(device));
    ++device.seed;
  }
  return gpu::make_gpu_ranks(std::move(devices), backend);
}

}  // namespace quire
