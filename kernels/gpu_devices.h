// The GPUs that a binary can use. There are several definitions of these functions, of which a binary is linked with
// one: no_gpu.cpp, cuda/open_gpu.cpp in builds with CUDA, and an emulated GPU in a daemon for tests. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.h"

namespace quire {

struct GpuOptions {
  int number = 0;             // of the GPU, from 0
  int count = 1;              // of GPUs from that one on, which compute a model together; probe_gpu looks at the first
  double memory_share = 0.9;  // of the memory that is free, what models may take
  int threads = 1;            // of the host, for parallel_for
  bool graphs = true;         // launches that repeat from step to step are enqueued as one
};

// A GPU that can be used, or one line that says why there is none.
struct GpuProbe {
  std::optional<BackendMemory> memory;
  std::string absent;
};

GpuProbe probe_gpu(const GpuOptions& options);
// Throws DeviceError where probe_gpu would say why not.
std::unique_ptr<Backend> open_gpu(const GpuOptions& options);

}  // namespace quire
