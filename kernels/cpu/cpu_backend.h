// The ISA levels that this processor and operating system can run, with their kernel tables, and CpuBackend: every
// operation of Backend on the compute threads of this process, with the kernels of one level. Levels: any thread; the
// backend: engine thread only, except the loading calls.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"

namespace quire {

struct CpuLevel {
  std::string_view name;
  const KernelTable* (*table)();  // the fastest table among those with equal bits
  bool (*supported)();
};

// By rising preference: the last supported one is the default.
std::span<const CpuLevel> cpu_levels();

// Finds a level; "auto": the best one. Throws std::runtime_error with one clear line if this machine lacks it.
const CpuLevel& choose_cpu_level(const std::string& name);

struct CpuBackendOptions {
  const KernelTable* kernels = nullptr;
  int threads = 1;  // the calling thread included
  bool pin = false;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace quire
