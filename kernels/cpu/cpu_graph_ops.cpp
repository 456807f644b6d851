#include "kernels/cpu/cpu_graph_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/check.h"
#include "kernels/cpu/graph_math.h"

namespace quire {
namespace {

// The tanh form (arXiv 1606.08415).
float gelu(float x) {
  return 0.5f * x * (1.0f + std::tanh(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
}

// arXiv 2411.13010: quadratic above zero, exponential below.
float xielu(float x, const ActivationArgs& args) {
  if (x > 0.0f) return softplus(args.alpha_p) * x * x + args.beta * x;
  return (std::expm1(std::min(x, args.eps)) - x) * (args.beta + softplus(args.alpha_n)) + args.beta * x;
}

float nonlinear(float x, const ActivationArgs& args) {
  switch (args.kind) {
    case Nonlinearity::kNone: return x;
    case Nonlinearity::kSilu: return x * sigmoid(x);
    case Nonlinearity::kGelu: return gelu(x);
    case Nonlinearity::kRelu: return std::max(x, 0.0f);
    case Nonlinearity::kReluSquared: return x > 0.0f ? x * x : 0.0f;
    case Nonlinearity::kXielu: return xielu(x, args);
    case Nonlinearity::kTanh: return std::tanh(x);
    case Nonlinearity::kSigmoid: return sigmoid(x);
    case Nonlinearity::kSwigluOai: return x;  // has two inputs
  }
  return x;
}

float gated_value(float gate, float up, const ActivationArgs& args) {
  if (args.kind == Nonlinearity::kSwigluOai) {
    const float x = std::min(gate, 7.0f);
    return x * sigmoid(1.702f * x) * (std::clamp(up, -7.0f, 7.0f) + 1.0f);
  }
  float value = nonlinear(gate, args);
  if (args.limit > 0.0f) {
    value = std::min(value, args.limit);
    up = std::clamp(up, -args.limit, args.limit);
  }
  return value * up;
}

}  // namespace

void CpuGraphOps::layer_norm(MatrixView x, const float* weight, const float* bias, float eps, MatrixView out) {
  for_rows(x.rows, x.cols,
           [&](std::int64_t row) { kernels_.layer_norm(row_of(x, row), weight, bias, eps, x.cols, row_of(out, row)); });
}

void CpuGraphOps::activate(const ActivationArgs& args, MatrixView gate, MatrixView up, MatrixView out) {
  constexpr std::int64_t kCost = 16;  // of one exponential, in the elements that kRowGrain counts
  const bool is_swiglu = args.kind == Nonlinearity::kSilu && args.limit == 0.0f && up.data != nullptr;
  const bool is_gelu = args.kind == Nonlinearity::kGelu && args.limit == 0.0f;
  for_rows(gate.rows, kCost * gate.cols, [&](std::int64_t row) {
    const float* g = row_of(gate, row);
    const float* u = up.data == nullptr ? nullptr : row_of(up, row);
    float* to = row_of(out, row);
    if (is_swiglu) return kernels_.swiglu(g, u, gate.cols, to);
    if (is_gelu) return kernels_.gelu(g, u, gate.cols, to);
    for (std::int64_t i = 0; i < gate.cols; ++i)
      to[i] = u == nullptr ? nonlinear(g[i], args) : gated_value(g[i], u[i], args);
  });
}

void CpuGraphOps::copy(MatrixView x, MatrixView out) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) { std::copy_n(row_of(x, row), x.cols, row_of(out, row)); });
}

void CpuGraphOps::add(MatrixView x, float scale, MatrixView out) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) {
    const float* from = row_of(x, row);
    float* to = row_of(out, row);
    for (std::int64_t i = 0; i < x.cols; ++i)
      to[i] += scale * from[i];
  });
}

void CpuGraphOps::scale(MatrixView x, float factor) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) {
    float* at = row_of(x, row);
    for (std::int64_t i = 0; i < x.cols; ++i)
      at[i] *= factor;
  });
}

void CpuGraphOps::scale_columns(MatrixView x, const float* factors) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) {
    float* at = row_of(x, row);
    for (std::int64_t i = 0; i < x.cols; ++i)
      at[i] *= factors[i];
  });
}

void CpuGraphOps::scale_rows(MatrixView x, std::span<const float> factors) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) {
    float* at = row_of(x, row);
    for (std::int64_t i = 0; i < x.cols; ++i)
      at[i] *= factors[static_cast<std::size_t>(row)];
  });
}

void CpuGraphOps::gate(Nonlinearity kind, MatrixView gate, MatrixView x) {
  const ActivationArgs args{.kind = kind};
  const std::int64_t width = x.cols / gate.cols;
  for_rows(x.rows, 8 * x.cols, [&](std::int64_t row) {
    for (std::int64_t g = 0; g < gate.cols; ++g) {
      const float factor = nonlinear(row_of(gate, row)[g], args);
      float* at = row_of(x, row) + g * width;
      for (std::int64_t i = 0; i < width; ++i)
        at[i] *= factor;
    }
  });
}

void CpuGraphOps::softcap(MatrixView x, float cap) {
  for_rows(x.rows, 16 * x.cols, [&](std::int64_t row) {
    float* at = row_of(x, row);
    for (std::int64_t i = 0; i < x.cols; ++i)
      at[i] = cap * std::tanh(at[i] / cap);
  });
}

// --- attention -------------------------------------------------------------------------------------------------------

namespace {

// Slopes of heads fall by equal factors (arXiv 2108.12409).
float alibi_slope(float largest_exponent, std::int64_t head, std::int64_t num_heads) {
  const auto power = std::bit_floor(static_cast<std::uint64_t>(num_heads));
  const auto whole = static_cast<double>(power);
  const double base = std::pow(2.0, -static_cast<double>(largest_exponent) / whole);
  const double half = std::pow(2.0, -static_cast<double>(largest_exponent) / 2.0 / whole);
  const auto h = static_cast<double>(head);
  return static_cast<float>(h < whole ? std::pow(base, h + 1.0) : std::pow(half, 2.0 * (h - whole) + 1.0));
}

void set_range(const AttentionOptions& options, std::int64_t position, std::int64_t context, RowAttention* row) {
  row->position = position;
  row->begin = 0;
  row->end = options.causal ? position + 1 : context;
  if (options.window > 0) {
    const std::int64_t reach = options.causal ? options.window - 1 : options.window / 2;
    row->begin = std::max<std::int64_t>(0, position - reach);
    if (!options.causal) row->end = std::min(context, position + reach + 1);
  }
  if (options.chunk > 0) row->begin = std::max(row->begin, position / options.chunk * options.chunk);
}

}  // namespace

void CpuGraphOps::attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                            const AttentionOptions& options, MatrixView out) {
  const auto& storage = static_cast<const CpuKvStorage&>(kv);
  const KvLayerShape& shape = storage.shape(layer);
  const std::int64_t value_dim = out.cols / options.num_heads;
  QUIRE_CHECK(shape.num_heads > 0 && options.num_heads % shape.num_heads == 0 &&
                  q.cols == options.num_heads * shape.key_dim &&
                  (options.value_in_key ? value_dim <= shape.key_dim : value_dim == shape.value_dim),
              "attention: shapes do not fit");
  const std::int64_t group = options.num_heads / shape.num_heads;
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int64_t first_row = batch.query_start[s];
    const std::int64_t num_rows = batch.query_start[s + 1] - first_row;
    const std::int64_t context = batch.context_len[s];
    const std::int32_t* table = batch.block_tables.data() + batch.block_table_start[s];
    pool_.run(num_rows * shape.num_heads, [&](int worker, std::int64_t unit) {
      const std::int64_t row = unit / shape.num_heads;
      const std::int64_t kv_head = unit % shape.num_heads;
      const KvHeadView view = storage.head(layer, kv_head);
      RowAttention task;
      task.block_table = table;
      task.scale = options.scale;
      task.softcap = options.softcap;
      task.value_in_key = options.value_in_key;
      task.value_dim = value_dim;
      set_range(options, context - num_rows + row, context, &task);
      float* scores = scores_[static_cast<std::size_t>(worker)].get<float>(
          static_cast<std::size_t>(task.end - task.begin + 2 * kPanelCols));
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        task.query = row_of(q, first_row + row) + head * shape.key_dim;
        task.out = row_of(out, first_row + row) + head * value_dim;
        task.has_sink = options.sinks != nullptr;
        if (task.has_sink) task.sink = options.sinks[head];
        if (options.alibi > 0.0f) task.slope = alibi_slope(options.alibi, head, options.num_heads);
        kernels_.attend_row(view, task, scores);
      }
    });
  }
}

}  // namespace quire
