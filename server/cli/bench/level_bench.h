// LevelBench: measures single operations of the backend at one ISA level. One thread at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/cli/bench/kernel_bench.h"

namespace quire::bench {

// Memory that weights, keys and values are spread over, so that no cache still holds them at their next read.
inline constexpr std::size_t kColdBytes = std::size_t{256} << 20;
inline constexpr double kPassSeconds = 0.04;

inline constexpr std::int64_t kBlockSize = 16;
// Attention products of this weight type: on matrix tiles if the level has them, else in f32.
inline constexpr DType kAttentionProducts = DType::kF16;

struct Shape {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

// The views of one step over a cache whose blocks are handed out in a shuffled order.
struct Scene {
  std::vector<std::int32_t> query_start{0}, contexts, table_start{0}, tables, slots;

  void add(std::int64_t rows, std::int64_t context, const std::vector<std::int32_t>& blocks, std::size_t first_block) {
    const std::int64_t count = (context + kBlockSize - 1) / kBlockSize;
    const auto from = blocks.begin() + static_cast<std::ptrdiff_t>(first_block);
    tables.insert(tables.end(), from, from + count);
    table_start.push_back(static_cast<std::int32_t>(tables.size()));
    query_start.push_back(query_start.back() + static_cast<std::int32_t>(rows));
    contexts.push_back(static_cast<std::int32_t>(context));
    for (std::int64_t row = context - rows; row < context; ++row) {
      const std::int32_t block = from[row / kBlockSize];
      slots.push_back(static_cast<std::int32_t>(block * kBlockSize + row % kBlockSize));
    }
  }
  AttentionBatch batch() const { return {query_start, contexts, table_start, tables, slots}; }
};

std::vector<std::int32_t> shuffled_blocks(std::int64_t count, std::mt19937& random);
double kv_token_bytes(Backend& backend, const KvLayout& layout);
KernelRow row_of(const char* operation, const std::string& type, const std::string& shape, std::int64_t rows);

// The median seconds of one call of body(call), over several passes; `call` counts the calls.
template <class Body>
double median_seconds(int passes, const Body& body) {
  using Clock = std::chrono::steady_clock;
  std::int64_t call = 0;
  const auto timed = [&](std::int64_t calls) {
    const auto begin = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i)
      body(call++);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::int64_t calls = 1;
  timed(1);  // grows scratch
  for (double seconds = timed(1); seconds < kPassSeconds; seconds = timed(calls))
    calls = std::max(calls + 1, static_cast<std::int64_t>(static_cast<double>(calls) * kPassSeconds / seconds));
  std::vector<double> each;
  for (int pass = 0; pass < passes; ++pass)
    each.push_back(timed(calls) / static_cast<double>(calls));
  std::ranges::sort(each);
  return each[each.size() / 2];
}

class LevelBench {
 public:
  LevelBench(const KernelBenchOptions& options, const CpuOptions& cpu,
             const std::function<void(const std::string&)>& progress)
      : options_(options),
        progress_(progress),
        meter_(cpu),
        limits_(meter_.measure(progress)),
        backend_(create_backend({.device = "cpu", .cpu = cpu})) {}

  const MachineLimits& limits() const { return limits_; }

  void linear(DType type, Shape shape, std::vector<KernelRow>& out);
  void attention(KvDType dtype, const std::string& name, std::vector<KernelRow>& out);
  void elementwise(std::vector<KernelRow>& out);
  // A feed-forward of experts in Qwen3-30B-A3B's shape: gate, up and down of the experts that rows choose.
  void experts(DType type, std::vector<KernelRow>& out);
  // Attention of families other than llama: windows, sinks, both directions, latent rows.
  void masked_attention(std::vector<KernelRow>& out);
  // Mixers that keep a state, over a prompt and over sequences of one token each.
  void recurrent(std::vector<KernelRow>& out);

 private:
  struct Mixer;
  struct AttentionShape;
  struct Work {
    double bytes = 0;
    double operations = 0;
    DType multiplied = DType::kF32;  // weight type that the multiply limit is measured with
    std::size_t working_set = 0;     // bytes that the reads are spread over
  };

  // Measures body(call) between two measurements of the limit that binds it.
  template <class Body>
  void measure(KernelRow row, const Work& work, const Body& body, std::vector<KernelRow>& out) {
    const double reading = work.bytes / limits_.read_rate(work.working_set);
    const double multiplying = work.operations / limits_.multiply_rate(work.multiplied);
    row.memory_bound = reading > multiplying;
    const auto limit_now = [&] {
      return row.memory_bound ? meter_.read_rate_now(work.working_set) : meter_.multiply_rate_now(work.multiplied);
    };
    const double before = limit_now();
    const double seconds = median_seconds(options_.passes, body);
    const double limit = (before + limit_now()) / 2.0 * 1e9;
    row.level = limits_.level;
    row.microseconds = seconds * 1e6;
    row.gigabytes_per_second = work.bytes / seconds * 1e-9;
    row.giga_operations_per_second = work.operations / seconds * 1e-9;
    row.percent_of_limit = 100.0 * (row.memory_bound ? work.bytes : work.operations) / limit / seconds;
    out.push_back(std::move(row));
  }

  // A matrix of normal numbers in the backend's memory.
  MatrixView matrix(std::int64_t rows, std::int64_t cols) {
    buffers_.push_back(backend_->allocate(rows * cols));
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    float* data = buffers_.back()->data();
    std::generate_n(data, rows * cols, [&] { return uniform(random_); });
    return {data, rows, cols, cols};
  }

  void decode(KvStorage& kv, const std::string& name, std::int64_t sequences, std::int64_t context,
              std::vector<KernelRow>& out);
  void prefill(KvStorage& kv, const std::string& name, std::int64_t context, std::vector<KernelRow>& out);
  std::unique_ptr<Linear> load(DType type, std::int64_t outputs, std::int64_t inputs, std::int64_t parts);
  std::unique_ptr<KvStorage> filled_cache(KvLayout layout, std::int64_t least_blocks);
  void masked(const AttentionShape& shape, std::int64_t sequences, std::int64_t rows, std::int64_t context,
              std::vector<KernelRow>& out);
  void mixer(const Mixer& mixer, std::int64_t sequences, std::int64_t rows, std::vector<KernelRow>& out);

  const KernelBenchOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  MachineMeter meter_;
  MachineLimits limits_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::mt19937 random_{1};
};

}  // namespace quire::bench
