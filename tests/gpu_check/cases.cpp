#include "tests/gpu_check/cases.h"

#include <algorithm>
#include <numeric>

#include "tests/gpu_check/placed.h"
#include "tests/kernels/random_data.h"

namespace quire::test {
namespace {

struct LinearShape {
  DType type;
  std::int64_t rows;
  std::int64_t outputs;
  std::int64_t depth;
  ProductInput::Form form = ProductInput::Form::kPlain;
  bool reversed = false;  // columns take the inputs from the last to the first
};

std::vector<float> run_linear(Backend& backend, const LinearShape& shape) {
  std::mt19937 random(11);
  const Weights weights = random_weights(random, shape.type, shape.outputs, shape.depth);
  WeightSource source = weights.source();
  std::vector<std::int32_t> order(static_cast<std::size_t>(shape.depth));
  std::iota(order.rbegin(), order.rend(), 0);
  if (shape.reversed) source.order = order.data();
  const std::vector<float> bias = random_floats(random, shape.outputs);
  const auto linear = backend.load_linear({&source, 1}, bias);
  const bool is_gated = shape.form == ProductInput::Form::kGated;
  const Placed x(backend, shape.rows, is_gated ? 2 * shape.depth : shape.depth, 12);
  const Placed norm(backend, 1, shape.depth, 13);
  const Placed out(backend, shape.rows, shape.outputs);
  const ProductInput input(shape.form, x.view, norm.view.data, 1e-5f);
  backend.linear(*linear, input, out.view, false);
  backend.linear(*linear, input, out.view, true);
  return read(backend, out.view);
}

std::vector<float> run_embed(Backend& backend, DType type) {
  std::mt19937 random(21);
  const Weights table = random_weights(random, type, 40, 256);
  const auto embedding = backend.load_embedding(table.source());
  const Placed out(backend, 5, 256);
  const std::vector<std::int32_t> ids = {0, 39, 7, 7, 20};
  backend.embed(*embedding, ids, out.view);
  return read(backend, out.view);
}

std::vector<float> run_rows(Backend& backend) {
  const std::int64_t cols = 6 * 64;
  const Placed x(backend, 5, cols, 31);
  const Placed weight(backend, 1, cols, 32);
  const Placed cos(backend, 5, 32);
  const Placed sin(backend, 5, 32);
  const std::vector<std::int32_t> positions = {0, 1, 77, 4000, 131071};
  std::vector<double> frequencies(32);
  std::iota(frequencies.begin(), frequencies.end(), 1.0);
  for (double& each : frequencies)
    each = 1.0 / (each * each);
  backend.rms_norm(x.view, weight.view.data, 1e-6f, x.view);
  backend.head_rms_norm(x.view, 6, 64, weight.view.data, 1e-6f);
  backend.rope_angles(positions, frequencies, 1.1f, cos.view, sin.view);
  backend.rope(x.view, 6, 64, RopeStyle::kHalf, cos.view, sin.view);
  backend.rope(x.view, 6, 64, RopeStyle::kInterleaved, cos.view, sin.view);
  const Placed out(backend, 3, cols);
  backend.gather_rows(x.view, std::vector<std::int32_t>{4, 0, 2}, out.view);
  return read(backend, out.view);
}

std::vector<float> run_graph(Backend& backend, Nonlinearity kind) {
  const Placed gate(backend, 4, 200, 41);
  const Placed up(backend, 4, 200, 42);
  const Placed bias(backend, 1, 200, 43);
  GraphOps& graph = *backend.graph();
  graph.layer_norm(gate.view, up.view.data, bias.view.data, 1e-5f, gate.view);
  graph.scale(gate.view, 3.0f);
  graph.scale(gate.view, bias.view.data);
  graph.activate({.kind = kind, .alpha_p = 0.8f, .alpha_n = 0.3f, .beta = 0.5f, .eps = -1e-6f}, gate.view, up.view,
                 gate.view);
  graph.gate(Nonlinearity::kSigmoid, up.view, gate.view);
  graph.softcap(gate.view, 2.5f);
  graph.add(up.view, 0.25f, gate.view);
  graph.scale_columns(gate.view, bias.view.data);
  graph.scale_rows(gate.view, std::vector<float>{1.0f, -2.0f, 0.5f, 3.0f});
  graph.clamp(gate.view, -1.5f, 1.75f);
  return read(backend, gate.view);
}

std::vector<float> run_experts(Backend& backend, DType type) {
  constexpr std::int64_t kRows = 9;
  constexpr std::int64_t kWidth = 256;
  std::mt19937 random(61);
  std::vector<std::unique_ptr<Linear>> gate_up;
  std::vector<std::unique_ptr<Linear>> down;
  for (int expert = 0; expert < 4; ++expert) {
    const Weights both = random_weights(random, type, 2 * kWidth, kWidth);
    const Weights low = random_weights(random, type, kWidth, kWidth);
    const WeightSource sources[] = {both.source(), low.source()};
    gate_up.push_back(backend.load_linear({sources, 1}, {}));
    down.push_back(backend.load_linear({sources + 1, 1}, {}));
  }
  const Placed x(backend, kRows, kWidth, 62);
  const Placed logits(backend, kRows, 4, 63);
  const Placed made(backend, 2 * kRows, 2 * kWidth);
  const Placed results(backend, 2 * kRows, kWidth);
  const Placed out(backend, kRows, kWidth);
  const ExpertChoices choices = backend.graph()->route(logits.view, {.num_chosen = 2, .normalise = true});
  backend.graph()->experts({.gate_up = gate_up, .down = down, .activation = {}}, choices, x.view, made.view,
                           results.view, out.view);
  return read(backend, out.view);
}

// Tolerances for a chip's own rounding in mma, and for activations rounded once more after it.
constexpr double kHalfSums = 2e-5;
constexpr double kRoundedHalfSums = 1e-2;

double linear_tolerance(DType type) {
  return type == DType::kF16 || type == DType::kBF16 ? kHalfSums : 0.0;
}

struct AttentionShape {
  KvDType dtype;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  AttentionOptions options = {};
  std::int32_t rows = 3;  // rows of the second sequence
};

// Two sequences, one of which has rows behind a long context.
std::vector<float> run_attention(Backend& backend, const AttentionShape& shape) {
  constexpr std::int32_t kBlock = 16;
  constexpr std::int32_t kTokens = 600;
  constexpr std::int32_t kFirst = 9;  // tokens of the first sequence
  const KvLayout layout{.num_layers = 2,
                        .num_blocks = 40,
                        .block_size = kBlock,
                        .num_kv_heads = shape.kv_heads,
                        .head_dim = shape.head_dim,
                        .dtype = shape.dtype};
  const auto kv = backend.allocate_kv(layout);
  std::vector<std::int32_t> blocks(39);
  std::iota(blocks.rbegin(), blocks.rend(), 1);
  std::vector<std::int32_t> slots;
  for (std::int32_t i = 0; i < kFirst; ++i)
    slots.push_back(blocks[0] * kBlock + i);
  for (std::int32_t i = 0; i < kTokens; ++i)
    slots.push_back(blocks[static_cast<std::size_t>(1 + i / kBlock)] * kBlock + i % kBlock);
  const auto rows = std::ssize(slots);
  const Placed k(backend, rows, shape.kv_heads * shape.head_dim, 51);
  const Placed v(backend, rows, shape.kv_heads * shape.head_dim, 52);
  const std::vector<std::int32_t> all_starts = {0, kFirst, static_cast<std::int32_t>(rows)};
  const std::vector<std::int32_t> contexts = {kFirst, kTokens};
  const std::vector<std::int32_t> tables = {0, 1, 39};
  backend.store_kv(*kv, 1, {all_starts, contexts, tables, blocks, slots}, k.view, v.view);
  const std::int32_t num_rows = 2 + shape.rows;
  const std::vector<std::int32_t> starts = {0, 2, num_rows};
  const Placed q(backend, num_rows, shape.heads * shape.head_dim, 53);
  const Placed out(backend, num_rows, shape.heads * shape.head_dim);
  const AttentionBatch batch{starts, contexts, tables, blocks,
                             std::span(slots).first(static_cast<std::size_t>(num_rows))};
  AttentionOptions options = shape.options;
  options.num_heads = shape.heads;
  options.scale = 0.125f;
  const Placed sinks(backend, 1, shape.heads, 54);
  if (options.sinks != nullptr) options.sinks = sinks.view.data;
  backend.graph()->attention(*kv, 1, batch, q.view, options, out.view);
  return read(backend, out.view);
}

std::vector<float> run_blocks(Backend& backend) {
  const auto kv = backend.allocate_kv({.num_layers = 3, .num_blocks = 4, .num_kv_heads = 2, .head_dim = 32});
  std::vector<std::byte> bytes(kv->block_bytes());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 7 % 251);
  kv->write_block(2, bytes);
  kv->copy_block(2, 0);
  std::ranges::fill(bytes, std::byte{0});
  kv->read_block(0, bytes);
  std::vector<float> out;
  for (const std::byte byte : bytes)
    out.push_back(static_cast<float>(std::to_integer<int>(byte)));
  return out;
}

void add_attention_cases(std::vector<DeviceCase>& out) {
  static const float kSinks = 0.0f;  // any address: the case makes random ones
  const std::pair<const char*, KvDType> types[] = {
      {"f32", KvDType::kF32}, {"f16", KvDType::kF16}, {"bf16", KvDType::kBF16}, {"int8", KvDType::kI8}};
  for (const auto& [name, dtype] : types) {
    const auto add = [&](const std::string& what, const AttentionShape& shape) {
      const bool in_tiles =
          (dtype == KvDType::kF16 || dtype == KvDType::kBF16) && shape.head_dim <= 256 && shape.head_dim % 8 == 0;
      out.push_back({"attention " + std::string(name) + " " + what,
                     [shape](Backend& backend) { return run_attention(backend, shape); }, in_tiles ? kHalfSums : 0.0});
    };
    add("32 heads of 128, 8 in the cache", {dtype, 32, 8, 128});
    add("3 heads of 24", {dtype, 3, 1, 24});
    add("window and sinks", {dtype, 8, 2, 64, {.window = 300, .sinks = &kSinks}});
    add("cap and slopes", {dtype, 4, 4, 32, {.softcap = 20.0f, .alibi = 8.0f}});
    add("6 heads of 20, 20 rows", {dtype, 6, 1, 20, {}, 20});
    if (dtype != KvDType::kF16 && dtype != KvDType::kBF16) continue;
    // Uses the kernels for many query vectors, for longer heads, and for the longest.
    add("8 heads of 64, 20 rows", {dtype, 8, 2, 64, {.window = 300}, 20});
    add("2 heads of 256", {dtype, 2, 1, 256});
    add("4 heads of 136, 20 rows", {dtype, 4, 1, 136, {}, 20});
    add("2 heads of 264", {dtype, 2, 1, 264});
  }
}

}  // namespace

std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> out;
  const auto add_linear = [&](const std::string& what, const LinearShape& shape) {
    out.push_back({"linear " + what + ", " + std::to_string(shape.rows) + " rows",
                   [shape](Backend& backend) { return run_linear(backend, shape); }, linear_tolerance(shape.type)});
  };
  for (const DType type : kAllTypes) {
    const std::string name(dtype_info(type).name);
    for (const std::int64_t rows : {1, 8, 13, 20, 33, 64, 130})
      add_linear(name, {type, rows, 150, 512});
    add_linear(name + " of a deep row", {type, 1, 20, 4352});
    out.push_back({"embed " + name, [type](Backend& backend) { return run_embed(backend, type); }, 0.0});
  }
  for (const DType type : {DType::kQ4_K, DType::kQ8_0, DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string name(dtype_info(type).name);
    add_linear(name + " of a norm over 2304", {type, 9, 70, 2304, ProductInput::Form::kNormed});
    add_linear(name + " of gated rows", {type, 70, 70, 512, ProductInput::Form::kGated});
    add_linear(name + " of many rows", {type, 550, 40, 256});
    add_linear(name + " of reversed inputs", {type, 3, 40, 256, ProductInput::Form::kPlain, true});
  }
  // Blocks of outputs and rows enough for the kernel for many rows (gpu_linear.cpp).
  for (const DType type : {DType::kF16, DType::kBF16})
    add_linear(std::string(dtype_info(type).name) + " of many blocks", {type, 1290, 2400, 96});
  for (const DType type : {DType::kQ4_K, DType::kBF16})
    out.push_back({"experts of " + std::string(dtype_info(type).name),
                   [type](Backend& backend) { return run_experts(backend, type); },
                   type == DType::kBF16 ? kRoundedHalfSums : 0.0});
  out.push_back({"norms, rotation, gathering", run_rows, 0.0});
  for (int kind = 0; kind <= static_cast<int>(Nonlinearity::kSigmoid); ++kind)
    out.push_back({"graph operations, nonlinearity " + std::to_string(kind),
                   [kind](Backend& backend) { return run_graph(backend, static_cast<Nonlinearity>(kind)); }, 0.0});
  add_attention_cases(out);
  add_mixer_cases(out);
  out.push_back({"blocks written, copied and read", run_blocks, 0.0});
  add_draw_cases(out);
  return out;
}

}  // namespace quire::test
