// `quire bench kernel`: times single operations of the backend by shape, type and ISA level, and compares them with the
// machine's measured limits. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/json/json_fwd.h"
#include "kernels/machine_limits.h"

namespace quire::bench {

struct KernelBenchOptions {
  CpuOptions cpu;  // isa is overridden by `levels`
  std::vector<std::string> levels{"auto"};
  std::vector<std::string> types{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"};
  std::vector<std::string> operations{"linear", "attention", "elementwise"};
  std::vector<std::int64_t> rows{1, 8, 32, 512};
  std::vector<std::string> shapes{"8192x2048"};  // outputs x inputs
  std::vector<std::int64_t> contexts{512, 8192};
  int passes = 5;  // number of passes behind each median
};

// A measured row. The ideal time is the longer of its bytes at the read rate and its arithmetic at the multiply rate.
struct KernelRow {
  std::string level;
  std::string operation;
  std::string type;
  std::string shape;
  std::int64_t rows = 0;
  double microseconds = 0;
  double gigabytes_per_second = 0;  // weights or keys and values, read once
  double giga_operations_per_second = 0;
  bool memory_bound = false;  // by the machine's limits
  double percent_of_limit = 0;
};

struct KernelReport {
  std::vector<MachineLimits> limits;  // measured, one per level
  std::vector<KernelRow> rows;
};

// Throws StartupError for an option that names something unknown. `progress` is called with each measurement's name.
KernelReport run_kernel_bench(const KernelBenchOptions& options,
                              const std::function<void(const std::string&)>& progress);
std::string to_table(const KernelReport& report);
Json to_json(const KernelReport& report);

}  // namespace quire::bench
