// The GPUs that a binary can use. There are several definitions of these functions, of which a binary is linked with
// one: no_gpu.cpp, cuda/open_gpu.cpp in builds with CUDA, and an emulated GPU in a daemon for tests. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.h"

namespace quire {

struct GpuOptions {
  int number = 0;             // index of the GPU, from 0
  int count = 1;              // GPUs from that one on that compute a model together; probe_gpu reads the first
  double memory_share = 0.9;  // share of the free memory that models may take
  int threads = 1;            // host threads of parallel_for
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
