// The backends and ISA levels of this build and machine; makes a backend from options. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace quire {

struct CpuOptions {
  std::string isa = "auto";  // or a name of cpu_isa_levels()
  int threads = 0;           // compute threads; 0: the cores this process may use (affinity and cgroup quota)
  bool pin = true;           // pin compute threads to cores
};

struct CudaOptions {
  double memory = 0.9;  // share of the GPU's free memory that models may take
  bool graphs = true;   // kernels that repeat from step to step are launched together
};

struct BackendOptions {
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  int tensor_parallel = 1;      // GPUs from that one on, which compute a model together
  CpuOptions cpu = {};
  CudaOptions cuda = {};
};

struct IsaLevel {
  std::string name;
  bool supported;  // this processor and operating system run it
};

std::vector<IsaLevel> cpu_isa_levels();  // ascending

bool is_device_name(std::string_view name);

// Throws std::runtime_error with one clear line if the options name something that this machine lacks.
std::unique_ptr<Backend> create_backend(const BackendOptions& options);

// Free memory of the GPU that create_backend would choose; nothing if it would choose the CPU. With several GPUs, the
// smallest.
std::optional<BackendMemory> own_memory(const BackendOptions& options);

}  // namespace quire
