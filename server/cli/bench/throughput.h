// `quire bench throughput`: the engine alone, without network or text: batches of equal requests, like
// llama-batched-bench; for an encoder, texts to vectors. One thread at a time: the caller's thread becomes the engine
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "kernels/backend.h"
#include "kernels/registry.h"

namespace quire::bench {

struct ThroughputOptions {
  std::filesystem::path model;
  BackendOptions backend;
  KvDType kv_dtype = KvDType::kF16;
  std::int32_t max_num_batched_tokens = 2048;
  std::int64_t prompt_tokens = 512;
  std::int64_t output_tokens = 128;
  std::vector<std::int64_t> batch_sizes{1, 8, 32};
  int repeats = 3;  // number of runs behind each median
};

struct ThroughputRow {
  std::int64_t num_sequences = 0;
  double prompt_tokens_per_second = 0;     // from the first step to every sequence's first token
  double decode_tokens_per_second = 0;     // all sequences, from there to the first end; 0: no time left
  double weight_gigabytes_per_second = 0;  // file bytes * decode steps per second: against the machine's read bandwidth
};

struct ThroughputReport {
  std::string model;
  std::string backend;
  std::uint64_t file_bytes = 0;
  std::vector<ThroughputRow> rows;
};

// Throws StartupError for a bad model. `progress` is called with each measurement's name.
ThroughputReport run_throughput(const ThroughputOptions& options,
                                const std::function<void(const std::string&)>& progress);

}  // namespace quire::bench
