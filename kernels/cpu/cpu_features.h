// Which ISA levels this processor and operating system can run, and their kernel tables. Any thread.
#pragma once

#include <span>
#include <string_view>

#include "kernels/cpu/kernel_table.h"

namespace quire {

struct CpuLevel {
  std::string_view name;
  const KernelTable* table;
  bool (*supported)();
};

// Ascending: the last supported one is the default.
std::span<const CpuLevel> cpu_levels();

}  // namespace quire
