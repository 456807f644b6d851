// The GPUs of a build with CUDA: instead of kernels/no_gpu.cpp.
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/gpu/ranks/gpu_ranks.h"
#include "kernels/gpu_devices.h"

namespace quire {

GpuProbe probe_gpu(const GpuOptions& options) {
  const gpu::GpuFacts facts = gpu::read_facts(options.number);
  std::string reason = gpu::why_not(facts);
  if (!reason.empty()) return {.memory = {}, .absent = std::move(reason)};
  std::size_t free = 0;
  std::size_t total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess)
    return {.memory = {},
            .absent = gpu::gpu_label(facts) + " does not say what memory is free: " + cudaGetErrorString(error)};
  const auto share = static_cast<std::uint64_t>(static_cast<double>(free) * options.memory_share);
  return {.memory = BackendMemory{gpu::gpu_label(facts), share}, .absent = {}};
}

std::unique_ptr<Backend> open_gpu(const GpuOptions& options) {
  const gpu::GpuBackendOptions backend{.name = "cuda", .threads = options.threads, .graphs = options.graphs};
  if (options.count == 1) return gpu::make_gpu_backend(std::make_unique<gpu::CudaDevice>(options.number), backend);
  const gpu::GpuFacts first = gpu::read_facts(options.number);
  std::vector<std::unique_ptr<gpu::Device>> devices;
  for (int number = options.number; number < options.number + options.count; ++number) {
    const gpu::GpuFacts facts = gpu::read_facts(number);
    if (facts.name != first.name)
      throw DeviceError(gpu::gpu_label(facts) + " and " + gpu::gpu_label(first) +
                        " are of different kinds: backend.tensor_parallel takes GPUs of one kind");
    devices.push_back(std::make_unique<gpu::CudaDevice>(number));
  }
  return gpu::make_gpu_ranks(std::move(devices), backend);
}

}  // namespace quire
