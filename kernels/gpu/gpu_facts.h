// GpuFacts: a driver's report on a machine's GPUs, and the reason why one of them cannot be used. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace quire::gpu {

struct GpuFacts {
  int driver_version = 0;  // 13000 is CUDA 13.0; 0: there is no driver
  int needed_version = 0;
  int num_gpus = 0;
  int number = 0;  // number of the wanted GPU
  std::string name = {};
  int capability = 0;      // times ten
  std::string error = {};  // the driver's error; empty: none
};

inline constexpr int kLeastCapability = 80;

// "GPU 0 (NVIDIA H200)".
std::string gpu_label(const GpuFacts& facts);
// Empty where the GPU can be used.
std::string why_not(const GpuFacts& facts);

}  // namespace quire::gpu
