#include "server/cli/bench/level_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "core/base/result.h"
#include "core/model/formats/gguf/quantize.h"

namespace quire::bench {

namespace {

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

}  // namespace

KernelRow row_of(const char* operation, const std::string& type, const std::string& shape, std::int64_t rows) {
  KernelRow row;
  row.operation = operation;
  row.type = type;
  row.shape = shape;
  row.rows = rows;
  return row;
}

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

// Loads `parts` equal weights side by side.
std::unique_ptr<Linear> LevelBench::load(DType type, std::int64_t outputs, std::int64_t inputs, std::int64_t parts) {
  const auto cols = static_cast<std::size_t>(inputs);
  constexpr std::int64_t kDistinct = 16;  // random rows, which the others repeat
  const std::size_t row_bytes = dtype_bytes(type, inputs);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(cols);
  std::vector<std::byte> source(row_bytes * static_cast<std::size_t>(outputs));
  for (std::int64_t row = 0; row < outputs; ++row) {
    std::byte* at = source.data() + static_cast<std::size_t>(row) * row_bytes;
    if (row >= kDistinct) {
      std::copy_n(source.data() + static_cast<std::size_t>(row % kDistinct) * row_bytes, row_bytes, at);
    } else if (can_quantize(type)) {  // other types keep zeros, which take the same time
      std::ranges::generate(values, [&] { return uniform(random_); });
      quantize(type, values, {at, row_bytes});
    }
  }
  const std::vector<WeightSource> all(static_cast<std::size_t>(parts), {type, outputs, inputs, source.data()});
  return backend_->load_linear(all, {});
}

void LevelBench::linear(DType type, Shape shape, std::vector<KernelRow>& out) {
  buffers_.clear();
  const std::size_t bytes = backend_->packed_bytes(type, shape.outputs, shape.inputs);
  std::vector<std::unique_ptr<Linear>> copies;
  do {
    copies.push_back(load(type, shape.outputs, shape.inputs, 1));
  } while (copies.size() * bytes < kColdBytes);
  for (const std::int64_t rows : options_.rows) {
    const std::string name(dtype_info(type).name);
    progress_(fmt::format("{} linear {} {}x{} {} rows", limits_.level, name, shape.outputs, shape.inputs, rows));
    const MatrixView x = matrix(rows, shape.inputs);
    const MatrixView y = matrix(rows, shape.outputs);
    const Work work{static_cast<double>(dtype_bytes(type, shape.outputs * shape.inputs)),
                    2.0 * static_cast<double>(rows) * static_cast<double>(shape.outputs * shape.inputs), type,
                    copies.size() * bytes};
    measure(
        row_of("linear", name, fmt::format("{}x{}", shape.outputs, shape.inputs), rows), work,
        [&](std::int64_t call) {
          backend_->linear(*copies[static_cast<std::size_t>(call) % copies.size()], x, y, false);
        },
        out);
  }
}

namespace {

// The attention of Llama-3.2-1B: 32 query heads over 8 of 64.
constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kHeadDim = 64;

}  // namespace

void LevelBench::decode(KvStorage& kv, const std::string& name, std::int64_t sequences, std::int64_t context,
                        std::vector<KernelRow>& out) {
  const KvLayout& layout = kv.layout();
  const std::int64_t each = (context + kBlockSize - 1) / kBlockSize;
  if (sequences * each > layout.num_blocks) return;
  progress_(fmt::format("{} attention {} {} sequences of {}", limits_.level, name, sequences, context));
  const auto blocks = shuffled_blocks(layout.num_blocks, random_);
  // Each call uses another layer and, if the cache is large enough, other blocks.
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
      [&](std::int64_t call) {
        const Scene& scene = scenes[static_cast<std::size_t>(call % sets)];
        backend_->attention(kv, call / sets % layout.num_layers, scene.batch(), q, kHeads, 0.125f, y);
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

// Allocates more blocks than the processor's caches hold.
std::unique_ptr<KvStorage> LevelBench::filled_cache(KvLayout layout, std::int64_t least_blocks) {
  layout.num_blocks = std::max(static_cast<std::int64_t>(kColdBytes / backend_->kv_block_bytes(layout)), least_blocks);
  auto kv = backend_->allocate_kv(layout);
  const std::vector<std::byte> ones(kv->block_bytes(), std::byte{0x3c});  // a normal number in every type
  for (std::int32_t block = 0; block < layout.num_blocks; ++block)
    kv->write_block(block, ones);
  return kv;
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
  const auto kv = filled_cache(layout, std::max(32 * 512 / kBlockSize, most / kBlockSize + 1));
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

namespace {

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
  // Checks all options before anything is measured.
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
      bench.attention(KvDType::kI4, "int4", report.rows);
    }
    if (wants("elementwise")) bench.elementwise(report.rows);
    for (const std::string& type : options.types) {
      if (wants("experts")) bench.experts(type_of(type), report.rows);
    }
    if (wants("masked-attention")) bench.masked_attention(report.rows);
    if (wants("recurrent")) bench.recurrent(report.rows);
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
