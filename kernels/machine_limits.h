// What this machine can do at most with a number of compute threads: reading and multiplying, measured. One thread at a
// time; takes some seconds. Benchmarks compare the kernels with it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/registry.h"

namespace quire {

struct ReadLimit {
  std::size_t bytes = 0;  // of all threads together
  double gigabytes_per_second = 0.0;
};

struct RateLimit {
  std::string name;                         // int8, fp32, bf16, amx-bf16, amx-int8
  double giga_operations_per_second = 0.0;  // a multiply-add is two
};

struct MachineLimits {
  std::string level;
  int threads = 0;
  std::vector<ReadLimit> reads;  // ascending sizes
  std::vector<RateLimit> rates;

  // The rate at which reads of a working set of `bytes` can go.
  double read_rate(std::size_t bytes) const;
  // The rate of the arithmetic that the level multiplies weights of `type` with.
  double multiply_rate(DType type) const;

  std::vector<std::string> multiplies_with;  // by DType: names of rates
};

// Throws std::runtime_error where the options name what this machine has not. `progress` is told what is measured.
MachineLimits measure_limits(const CpuOptions& options, const std::function<void(const std::string&)>& progress);

}  // namespace quire
