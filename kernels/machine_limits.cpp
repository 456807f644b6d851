#include "kernels/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/machine/memory.h"
#include "kernels/cpu/machine/processor.h"
#include "kernels/cpu/machine/thread_pool.h"
#include "kernels/cpu/machine/topology.h"

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
      pause_spinning();
    body(piece);
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The median rate of body(piece, repeats), one call of which does `work` per repeat on every thread.
template <class Body>
double median_rate(ThreadPool& pool, double work, int passes, const Body& body) {
  std::int64_t repeats = 1;
  double seconds = timed(pool, [&](std::int64_t piece) { body(piece, repeats); });
  while (seconds < kPassSeconds) {
    const double factor = seconds > 0.0 ? kPassSeconds / seconds * 1.2 : 16.0;
    repeats = static_cast<std::int64_t>(static_cast<double>(repeats) * std::clamp(factor, 2.0, 16.0));
    seconds = timed(pool, [&](std::int64_t piece) { body(piece, repeats); });
  }
  std::vector<double> rates{work * static_cast<double>(repeats) * pool.size() / seconds * 1e-9};
  while (static_cast<int>(rates.size()) < passes) {
    const double taken = timed(pool, [&](std::int64_t piece) { body(piece, repeats); });
    rates.push_back(work * static_cast<double>(repeats) * pool.size() / taken * 1e-9);
  }
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

struct NamedLoop {
  const char* name;
  const RateLoop& loop;
};

std::vector<NamedLoop> loops_of(const RateTable& rates) {
  std::vector<NamedLoop> loops;
  for (const NamedLoop& named : {NamedLoop{"fp32", rates.fp32},
                                 {"int8", rates.int8},
                                 {"bf16", rates.bf16},
                                 {"amx-bf16", rates.tile_bf16},
                                 {"amx-int8", rates.tile_int8}}) {
    if (named.loop.run != nullptr) loops.push_back(named);
  }
  return loops;
}

std::string multiplies_with(const KernelTable& kernels, std::size_t type) {
  switch (kernels.activation[type]) {
    case Activation::kBlocks: return kernels.rates.int8.run != nullptr ? "int8" : "fp32";
    case Activation::kHalves:
    case Activation::kPairs: return kernels.rates.tile_bf16.run != nullptr ? "amx-bf16" : "bf16";
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

struct MachineMeter::State {
  explicit State(const CpuOptions& options)
      : kernels(*choose_cpu_level(options.isa).table()),
        pool(options.threads > 0 ? options.threads : default_threads(),
             options.pin ? usable_cores() : std::vector<int>()),
        memory(std::ranges::max(kReadSizes)) {
    const std::size_t share = share_of(memory.size());
    pool.run(pool.size(), [&](int, std::int64_t piece) {
      // Untouched pages would all be the one page of zeros.
      std::memset(memory.data() + static_cast<std::size_t>(piece) * share, 1, share);
    });
  }

  std::size_t share_of(std::size_t bytes) const { return bytes / static_cast<std::size_t>(pool.size()) / 4096 * 4096; }

  double read(std::size_t bytes, int passes) {
    const std::size_t share = share_of(bytes);
    return median_rate(pool, static_cast<double>(share), passes, [&](std::int64_t piece, std::int64_t repeats) {
      for (std::int64_t i = 0; i < repeats; ++i)
        kernels.rates.read(memory.data() + static_cast<std::size_t>(piece) * share, share);
    });
  }
  double multiply(const RateLoop& loop, int passes) {
    return median_rate(pool, loop.operations, passes, [&](std::int64_t, std::int64_t repeats) { loop.run(repeats); });
  }

  const KernelTable& kernels;
  ThreadPool pool;
  AlignedMemory memory;
};

MachineMeter::MachineMeter(const CpuOptions& options) : state_(std::make_unique<State>(options)) {}
MachineMeter::~MachineMeter() = default;

MachineLimits MachineMeter::measure(const std::function<void(const std::string&)>& progress) {
  MachineLimits limits;
  limits.level = state_->kernels.name;
  limits.threads = state_->pool.size();
  for (const std::size_t bytes : kReadSizes) {
    progress("reading " + std::to_string(bytes >> 20) + " MiB");
    limits.reads.push_back({bytes, state_->read(bytes, kPasses)});
  }
  for (const NamedLoop& named : loops_of(state_->kernels.rates)) {
    progress(std::string("multiplying ") + named.name);
    limits.rates.push_back({named.name, state_->multiply(named.loop, kPasses)});
  }
  for (std::size_t type = 0; type < kNumWeightTypes; ++type)
    limits.multiplies_with.push_back(multiplies_with(state_->kernels, type));
  return limits;
}

double MachineMeter::read_rate_now(std::size_t bytes) {
  const auto* size = std::ranges::lower_bound(kReadSizes, bytes);
  return state_->read(size == std::end(kReadSizes) ? std::ranges::max(kReadSizes) : *size, 1);
}

double MachineMeter::multiply_rate_now(DType type) {
  const std::string name = multiplies_with(state_->kernels, static_cast<std::size_t>(type));
  for (const NamedLoop& named : loops_of(state_->kernels.rates)) {
    if (named.name == name) return state_->multiply(named.loop, 1);
  }
  return 0.0;
}

}  // namespace quire
