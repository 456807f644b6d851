// The measured peak rates of this machine with a number of compute threads: reading and multiplying. One thread at a
// time; takes some seconds. Benchmarks compare the kernels with it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/formats/dtype.h"
#include "kernels/registry.h"

namespace quire {

struct ReadLimit {
  std::size_t bytes = 0;  // sum over all threads
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

  std::vector<std::string> multiplies_with;  // names of rates, by DType
};

// Measures, with threads and memory of its own: 1 GiB while it lives.
class MachineMeter {
 public:
  // Throws std::runtime_error where the options name what this machine has not.
  explicit MachineMeter(const CpuOptions& options);
  ~MachineMeter();
  MachineMeter(const MachineMeter&) = delete;
  MachineMeter& operator=(const MachineMeter&) = delete;

  // Measures all limits as medians of several passes. `progress` is called with each measurement's name.
  MachineLimits measure(const std::function<void(const std::string&)>& progress);
  // The present rate, measured in 50 ms: neighbours on a shared machine change it.
  double read_rate_now(std::size_t bytes);
  double multiply_rate_now(DType type);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
