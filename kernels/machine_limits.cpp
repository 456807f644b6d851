#include "kernels/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/topology.h"

namespace quire {
namespace {

constexpr int kPasses = 5;  // medians over these
constexpr double kPassSeconds = 0.05;
constexpr std::size_t kReadSizes[] = {std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{256} << 20,
                                      std::size_t{1} << 30};

// Seconds of body(worker) on every worker at once, which all begin together.
template <class Body>
double timed(ThreadPool& pool, const Body& body) {
  std::atomic<int> arrived{0};
  const auto begin = std::chrono::steady_clock::now();
  pool.run(pool.size(), [&](int, std::int64_t piece) {
    arrived.fetch_add(1);
    while (arrived.load() < pool.size())
      __builtin_ia32_pause();
    body(piece);
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The median rate of body(piece, repeats), one call of which does `work` per repeat on every thread.
template <class Body>
double median_rate(ThreadPool& pool, double work, const Body& body) {
  std::int64_t repeats = 1;
  double seconds = timed(pool, [&](std::int64_t piece) { body(piece, repeats); });
  while (seconds < kPassSeconds) {
    const double factor = seconds > 0.0 ? kPassSeconds / seconds * 1.2 : 16.0;
    repeats = static_cast<std::int64_t>(static_cast<double>(repeats) * std::clamp(factor, 2.0, 16.0));
    seconds = timed(pool, [&](std::int64_t piece) { body(piece, repeats); });
  }
  std::vector<double> rates;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double taken = timed(pool, [&](std::int64_t piece) { body(piece, repeats); });
    rates.push_back(work * static_cast<double>(repeats) * pool.size() / taken * 1e-9);
  }
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

std::vector<ReadLimit> measure_reads(const KernelTable& kernels, ThreadPool& pool,
                                     const std::function<void(const std::string&)>& progress) {
  const std::size_t largest = std::ranges::max(kReadSizes);
  const AlignedMemory memory(largest);
  const std::size_t share_of_all = largest / static_cast<std::size_t>(pool.size()) / 4096 * 4096;
  pool.run(pool.size(), [&](int, std::int64_t piece) {
    // Untouched pages would all be the one page of zeros.
    std::memset(memory.data() + static_cast<std::size_t>(piece) * share_of_all, 1, share_of_all);
  });
  std::vector<ReadLimit> out;
  for (const std::size_t bytes : kReadSizes) {
    progress("reading " + std::to_string(bytes >> 20) + " MiB");
    const std::size_t share = bytes / static_cast<std::size_t>(pool.size()) / 4096 * 4096;
    const double rate = median_rate(pool, static_cast<double>(share), [&](std::int64_t piece, std::int64_t repeats) {
      for (std::int64_t i = 0; i < repeats; ++i)
        kernels.rates.read(memory.data() + static_cast<std::size_t>(piece) * share, share);
    });
    out.push_back({bytes, rate});
  }
  return out;
}

std::string multiplies_with(const KernelTable& kernels, std::size_t type) {
  switch (kernels.activation[type]) {
    case Activation::kBlocks: return kernels.rates.int8.run != nullptr ? "int8" : "fp32";
    case Activation::kHalves: return kernels.rates.tile_bf16.run != nullptr ? "amx-bf16" : "bf16";
    case Activation::kFloats: return "fp32";
  }
  return "fp32";
}

}  // namespace

double MachineLimits::read_rate(std::size_t bytes) const {
  for (const ReadLimit& read : reads) {
    if (bytes <= read.bytes) return read.gigabytes_per_second;
  }
  return reads.back().gigabytes_per_second;
}

double MachineLimits::multiply_rate(DType type) const {
  const std::string& name = multiplies_with[static_cast<std::size_t>(type)];
  return std::ranges::find(rates, name, &RateLimit::name)->giga_operations_per_second;
}

MachineLimits measure_limits(const CpuOptions& options, const std::function<void(const std::string&)>& progress) {
  const KernelTable& kernels = *choose_cpu_level(options.isa).table();
  ThreadPool pool(options.threads > 0 ? options.threads : default_threads(),
                  options.pin ? usable_cores() : std::vector<int>());
  MachineLimits limits;
  limits.level = kernels.name;
  limits.threads = pool.size();
  limits.reads = measure_reads(kernels, pool, progress);
  const auto measure = [&](const char* name, const RateLoop& loop) {
    if (loop.run == nullptr) return;
    progress(std::string("multiplying ") + name);
    limits.rates.push_back(
        {name, median_rate(pool, loop.operations, [&](std::int64_t, std::int64_t repeats) { loop.run(repeats); })});
  };
  measure("fp32", kernels.rates.fp32);
  measure("int8", kernels.rates.int8);
  measure("bf16", kernels.rates.bf16);
  measure("amx-bf16", kernels.rates.tile_bf16);
  measure("amx-int8", kernels.rates.tile_int8);
  for (std::size_t type = 0; type < kNumWeightTypes; ++type)
    limits.multiplies_with.push_back(quire::multiplies_with(kernels, type));
  return limits;
}

}  // namespace quire
