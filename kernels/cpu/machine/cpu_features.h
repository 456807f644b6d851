// The ISA levels that this processor and operating system can run, and their kernel tables. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kernels/cpu/kernel_table.h"

namespace quire {

struct CpuLevel {
  std::string_view name;
  const KernelTable* (*table)();  // the fastest table among those with equal bits
  bool (*supported)();
};

// Ascending: the last supported one is the default.
std::span<const CpuLevel> cpu_levels();

// Finds a level; "auto": the best one. Throws std::runtime_error with one clear line if this machine lacks it.
const CpuLevel& choose_cpu_level(const std::string& name);

}  // namespace quire
