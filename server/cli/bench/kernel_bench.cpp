#include "server/cli/bench/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>

#include "core/base/result.h"
#include "core/model/formats/quantize.h"

namespace quire::bench {

namespace {

// Weights, keys and values are spread over this much, so that no cache holds them when they are next read.
constexpr std::size_t kColdBytes = std::size_t{256} << 20;
constexpr double kPassSeconds = 0.04;

struct Shape {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

Shape parse_shape(const std::string& text) {
  Shape shape;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, shape.outputs);
  const bool crossed = first.ec == std::errc() && first.ptr != end && *first.ptr == 'x';
  const auto second = crossed ? std::from_chars(first.ptr + 1, end, shape.inputs) : first;
  if (!crossed || second.ec != std::errc() || second.ptr != end || shape.outputs < 1 || shape.inputs < 1 ||
      shape.inputs % 256 != 0 || shape.outputs > (1 << 20) || shape.inputs > (1 << 20)) {
    throw StartupError("'" + text + "' is no shape: outputs x inputs, such as 8192x2048, inputs a multiple of 256");
  }
  return shape;
}

// The median seconds of one call of body(turn), over passes of enough calls; every turn is another number.
template <class Body>
double median_seconds(int passes, const Body& body) {
  using Clock = std::chrono::steady_clock;
  std::int64_t turn = 0;
  const auto timed = [&](std::int64_t calls) {
    const auto begin = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i)
      body(turn++);
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

KernelRow row_of(const char* operation, const std::string& type, const std::string& shape, std::int64_t rows) {
  KernelRow row;
  row.operation = operation;
  row.type = type;
  row.shape = shape;
  row.rows = rows;
  return row;
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

 private:
  struct Work {
    double bytes = 0;
    double operations = 0;
    DType multiplied = DType::kF32;  // as weights of this type are
    std::size_t working_set = 0;     // bytes the reads are spread over
  };

  // Measures body(turn) between two measurements of the limit that binds it.
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

  // Floats in the backend's memory, of ordinary size.
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

  const KernelBenchOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  MachineMeter meter_;
  MachineLimits limits_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::mt19937 random_{1};
};

void LevelBench::linear(DType type, Shape shape, std::vector<KernelRow>& out) {
  buffers_.clear();
  const auto cols = static_cast<std::size_t>(shape.inputs);
  constexpr std::int64_t kDistinct = 16;  // rows that are really random; the others repeat them
  const MatrixView values = matrix(kDistinct, shape.inputs);
  const std::size_t row_bytes = dtype_bytes(type, shape.inputs);
  std::vector<std::byte> source(row_bytes * static_cast<std::size_t>(shape.outputs));
  for (std::int64_t row = 0; row < shape.outputs; ++row) {
    std::byte* at = source.data() + static_cast<std::size_t>(row) * row_bytes;
    if (row < kDistinct) {
      // Blocks of types that are only read stay zeros, which take the same time.
      if (can_quantize(type)) quantize(type, {values.data + row * values.stride, cols}, {at, row_bytes});
    } else {
      std::copy_n(source.data() + static_cast<std::size_t>(row % kDistinct) * row_bytes, row_bytes, at);
    }
  }
  const WeightSource weights{type, shape.outputs, shape.inputs, source.data()};
  const std::size_t bytes = backend_->packed_bytes(type, shape.outputs, shape.inputs);
  std::vector<std::unique_ptr<Linear>> copies;
  do {
    copies.push_back(backend_->load_linear({&weights, 1}, {}));
  } while (copies.size() * bytes < kColdBytes);
  for (const std::int64_t rows : options_.rows) {
    const std::string name(dtype_info(type).name);
    progress_(fmt::format("{} linear {} {}x{} {} rows", limits_.level, name, shape.outputs, shape.inputs, rows));
    const MatrixView x = matrix(rows, shape.inputs);
    const MatrixView y = matrix(rows, shape.outputs);
    const Work work{static_cast<double>(source.size()),
                    2.0 * static_cast<double>(rows) * static_cast<double>(shape.outputs * shape.inputs), type,
                    copies.size() * bytes};
    measure(
        row_of("linear", name, fmt::format("{}x{}", shape.outputs, shape.inputs), rows), work,
        [&](std::int64_t turn) {
          backend_->linear(*copies[static_cast<std::size_t>(turn) % copies.size()], x, y, false);
        },
        out);
  }
}

// The attention of Llama-3.2-1B: 32 query heads over 8 of 64.
constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kHeadDim = 64;
constexpr std::int64_t kBlockSize = 16;
// As weights of this type, attention is multiplied with tiles where there are any, in f32 elsewhere.
constexpr DType kAttentionProducts = DType::kF16;

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

std::vector<std::int32_t> shuffled_blocks(std::int64_t count, std::mt19937& random) {
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(count));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::ranges::shuffle(blocks, random);
  return blocks;
}

double kv_token_bytes(Backend& backend, const KvLayout& layout) {
  KvLayout one = layout;
  one.num_layers = 1;
  return static_cast<double>(backend.kv_block_bytes(one)) / kBlockSize;
}

void LevelBench::decode(KvStorage& kv, const std::string& name, std::int64_t sequences, std::int64_t context,
                        std::vector<KernelRow>& out) {
  const KvLayout& layout = kv.layout();
  const std::int64_t each = (context + kBlockSize - 1) / kBlockSize;
  if (sequences * each > layout.num_blocks) return;
  progress_(fmt::format("{} attention {} {} sequences of {}", limits_.level, name, sequences, context));
  const auto blocks = shuffled_blocks(layout.num_blocks, random_);
  // Each turn is another layer and, where there is room, other blocks.
  const std::int64_t sets = layout.num_blocks / (sequences * each);
  std::vector<Scene> scenes(static_cast<std::size_t>(sets));
  for (std::size_t set = 0; set < scenes.size(); ++set) {
    for (std::int64_t s = 0; s < sequences; ++s)
      scenes[set].add(
          1, context, blocks,
          (set * static_cast<std::size_t>(sequences) + static_cast<std::size_t>(s)) * static_cast<std::size_t>(each));
  }
  const MatrixView q = matrix(sequences, kHeads * kHeadDim);
  const MatrixView y = matrix(sequences, kHeads * kHeadDim);
  const auto tokens = static_cast<double>(sequences * context);
  const Work work{tokens * kv_token_bytes(*backend_, layout), tokens * 4.0 * kHeads * kHeadDim, kAttentionProducts,
                  kColdBytes};
  measure(
      row_of("attention, decode", name, fmt::format("context {}", context), sequences), work,
      [&](std::int64_t turn) {
        const Scene& scene = scenes[static_cast<std::size_t>(turn % sets)];
        backend_->attention(kv, turn / sets % layout.num_layers, scene.batch(), q, kHeads, 0.125f, y);
      },
      out);
}

void LevelBench::prefill(KvStorage& kv, const std::string& name, std::int64_t context, std::vector<KernelRow>& out) {
  const std::int64_t rows = std::min<std::int64_t>(512, context);
  if ((context + kBlockSize - 1) / kBlockSize > kv.layout().num_blocks) return;
  progress_(fmt::format("{} attention {} {} rows up to {}", limits_.level, name, rows, context));
  Scene scene;
  scene.add(rows, context, shuffled_blocks(kv.layout().num_blocks, random_), 0);
  const MatrixView q = matrix(rows, kHeads * kHeadDim);
  const MatrixView y = matrix(rows, kHeads * kHeadDim);
  const double pairs = static_cast<double>(rows) * (static_cast<double>(context) - static_cast<double>(rows - 1) / 2.0);
  const Work work{static_cast<double>(context) * kv_token_bytes(*backend_, kv.layout()),
                  pairs * 4.0 * kHeads * kHeadDim, kAttentionProducts, std::size_t{16} << 20};
  measure(
      row_of("attention, prefill", name, fmt::format("context {}", context), rows), work,
      [&](std::int64_t) { backend_->attention(kv, 0, scene.batch(), q, kHeads, 0.125f, y); }, out);
}

void LevelBench::attention(KvDType dtype, const std::string& name, std::vector<KernelRow>& out) {
  buffers_.clear();
  KvLayout layout{.num_layers = 16,
                  .num_blocks = 0,
                  .block_size = kBlockSize,
                  .num_kv_heads = kKvHeads,
                  .head_dim = kHeadDim,
                  .dtype = dtype};
  const std::int64_t most = *std::ranges::max_element(options_.contexts);
  const auto cold = static_cast<std::int64_t>(kColdBytes / backend_->kv_block_bytes(layout));
  layout.num_blocks = std::max({cold, 32 * 512 / kBlockSize, most / kBlockSize + 1});
  const auto kv = backend_->allocate_kv(layout);
  const std::vector<std::byte> ones(kv->block_bytes(), std::byte{0x3c});  // of ordinary size in every type
  for (std::int32_t block = 0; block < layout.num_blocks; ++block)
    kv->write_block(block, ones);
  for (const std::int64_t context : options_.contexts) {
    for (const std::int64_t sequences : {1, 32})
      decode(*kv, name, sequences, context, out);
    prefill(*kv, name, context, out);
  }
}

void LevelBench::elementwise(std::vector<KernelRow>& out) {
  buffers_.clear();
  constexpr std::int64_t kCols = 2048;
  const MatrixView weight = matrix(1, kCols);
  for (const std::int64_t rows : options_.rows) {
    progress_(fmt::format("{} element-wise, {} rows", limits_.level, rows));
    const MatrixView x = matrix(rows, kCols);
    const MatrixView y = matrix(rows, kCols);
    const auto pass = [&](const char* name, std::int64_t floats_read, const auto& body) {
      const auto bytes = static_cast<std::size_t>(floats_read * rows) * sizeof(float);
      const Work work{static_cast<double>(bytes), 0.0, DType::kF32, bytes};
      measure(
          row_of(name, "f32", fmt::format("{} wide", floats_read), rows), work, [&](std::int64_t) { body(); }, out);
    };
    pass("rms_norm", kCols, [&] { backend_->rms_norm(x, weight.data, 1e-5f, y); });
  }
}

DType type_of(const std::string& name) {
  const auto type = parse_dtype(name);
  if (!type) throw StartupError("'" + name + "' is no type of weights");
  return *type;
}

}  // namespace

KernelReport run_kernel_bench(const KernelBenchOptions& options,
                              const std::function<void(const std::string&)>& progress) {
  KernelReport report;
  const auto wants = [&](const char* operation) {
    return std::ranges::find(options.operations, operation) != options.operations.end();
  };
  // Everything that can be refused is, before anything is measured.
  for (const std::string& type : options.types)
    type_of(type);
  for (const std::string& shape : options.shapes)
    parse_shape(shape);
  for (const std::string& level : options.levels) {
    CpuOptions cpu = options.cpu;
    cpu.isa = level;
    LevelBench bench(options, cpu, progress);
    report.limits.push_back(bench.limits());
    for (const std::string& shape : options.shapes) {
      for (const std::string& type : options.types) {
        if (wants("linear")) bench.linear(type_of(type), parse_shape(shape), report.rows);
      }
    }
    if (wants("attention")) {
      bench.attention(KvDType::kF16, "f16", report.rows);
      bench.attention(KvDType::kBF16, "bf16", report.rows);
      bench.attention(KvDType::kI8, "int8", report.rows);
    }
    if (wants("elementwise")) bench.elementwise(report.rows);
  }
  return report;
}

std::string to_table(const KernelReport& report) {
  std::string out;
  for (const MachineLimits& limits : report.limits) {
    out += fmt::format("{}, {} threads, at most:", limits.level, limits.threads);
    for (const ReadLimit& read : limits.reads)
      out += fmt::format("  read {} MiB {:.1f} GB/s", read.bytes >> 20, read.gigabytes_per_second);
    for (const RateLimit& rate : limits.rates)
      out += fmt::format("  {} {:.0f} Gop/s", rate.name, rate.giga_operations_per_second);
    out += '\n';
  }
  out += fmt::format("{:<11}{:<19}{:<6}{:<14}{:>5}{:>11}{:>9}{:>10}  {}\n", "level", "operation", "type", "shape",
                     "rows", "us", "GB/s", "Gop/s", "% of limit");
  for (const KernelRow& row : report.rows) {
    out +=
        fmt::format("{:<11}{:<19}{:<6}{:<14}{:>5}{:>11.1f}{:>9.2f}{:>10.1f}  {:>3.0f} of {}\n", row.level,
                    row.operation, row.type, row.shape, row.rows, row.microseconds, row.gigabytes_per_second,
                    row.giga_operations_per_second, row.percent_of_limit, row.memory_bound ? "reading" : "arithmetic");
  }
  return out;
}

}  // namespace quire::bench
