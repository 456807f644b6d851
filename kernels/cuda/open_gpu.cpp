// The GPUs of a build with CUDA: instead of kernels/no_gpu.cpp.
#include "kernels/cuda/cuda_device.h"
#include "kernels/gpu/gpu_backend.h"
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
  return gpu::make_gpu_backend(std::make_unique<gpu::CudaDevice>(options.number),
                               {.name = "cuda", .threads = options.threads, .graphs = options.graphs});
}

}  // namespace quire
