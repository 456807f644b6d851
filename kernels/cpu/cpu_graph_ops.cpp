#include "kernels/cpu/cpu_graph_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/check.h"

namespace quire {
namespace {

constexpr std::int64_t kRowGrain = 8192;

float* row_of(MatrixView view, std::int64_t row) {
  return view.data + row * view.stride;
}

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

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

template <class Body>
void CpuGraphOps::for_rows(std::int64_t rows, std::int64_t cost, const Body& body) {
  const std::int64_t step = std::max<std::int64_t>(1, kRowGrain / std::max<std::int64_t>(1, cost));
  pool_.run((rows + step - 1) / step, [&](int, std::int64_t piece) {
    for (std::int64_t row = piece * step; row < std::min(rows, (piece + 1) * step); ++row)
      body(row);
  });
}

void CpuGraphOps::layer_norm(MatrixView x, const float* weight, const float* bias, float eps, MatrixView out) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) {
    const float* from = row_of(x, row);
    float* to = row_of(out, row);
    float sum = 0.0f;
    for (std::int64_t i = 0; i < x.cols; ++i)
      sum += from[i];
    const float mean = sum / static_cast<float>(x.cols);
    float squares = 0.0f;
    for (std::int64_t i = 0; i < x.cols; ++i)
      squares += (from[i] - mean) * (from[i] - mean);
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(x.cols) + eps);
    for (std::int64_t i = 0; i < x.cols; ++i)
      to[i] = (from[i] - mean) * factor * weight[i] + (bias == nullptr ? 0.0f : bias[i]);
  });
}

void CpuGraphOps::activate(const ActivationArgs& args, MatrixView gate, MatrixView up, MatrixView out) {
  constexpr std::int64_t kCost = 16;  // of one exponential, in the elements that kRowGrain counts
  const bool plain = args.kind == Nonlinearity::kSilu && args.limit == 0.0f && up.data != nullptr;
  for_rows(gate.rows, kCost * gate.cols, [&](std::int64_t row) {
    const float* g = row_of(gate, row);
    const float* u = up.data == nullptr ? nullptr : row_of(up, row);
    float* to = row_of(out, row);
    if (plain) return kernels_.swiglu(g, u, gate.cols, to);
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

// --- experts ---------------------------------------------------------------------------------------------------------

namespace {

// The `count` largest of `scores` in descending order, the lower index first among equals.
void choose(const float* scores, std::int64_t size, std::int64_t count, std::int32_t* out) {
  for (std::int64_t n = 0; n < count; ++n) {
    std::int32_t best = -1;
    for (std::int32_t i = 0; i < size; ++i) {
      if (std::find(out, out + n, i) != out + n) continue;
      if (best < 0 || scores[i] > scores[best]) best = i;
    }
    out[n] = best;
  }
}

void softmax(float* x, std::int64_t count) {
  const float largest = *std::max_element(x, x + count);
  float sum = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = std::exp(x[i] - largest);
    sum += x[i];
  }
  for (std::int64_t i = 0; i < count; ++i)
    x[i] /= sum;
}

// Experts outside the best groups lose their scores; a group is as good as its two best experts together.
void keep_best_groups(float* scores, std::int64_t num_experts, const RouteOptions& options) {
  const std::int64_t size = num_experts / options.num_groups;
  std::vector<float> of_group;
  for (std::int64_t g = 0; g < options.num_groups; ++g) {
    float best[2] = {-INFINITY, -INFINITY};
    for (std::int64_t i = g * size; i < (g + 1) * size; ++i) {
      if (scores[i] > best[0]) {
        best[1] = best[0];
        best[0] = scores[i];
      } else {
        best[1] = std::max(best[1], scores[i]);
      }
    }
    of_group.push_back(size > 1 ? best[0] + best[1] : best[0]);
  }
  std::vector<std::int32_t> kept(static_cast<std::size_t>(options.num_groups_chosen));
  choose(of_group.data(), options.num_groups, options.num_groups_chosen, kept.data());
  for (std::int64_t i = 0; i < num_experts; ++i) {
    if (std::ranges::find(kept, static_cast<std::int32_t>(i / size)) == kept.end()) scores[i] = -INFINITY;
  }
}

}  // namespace

void CpuGraphOps::route_row(const float* logits, std::int64_t num_experts, const RouteOptions& options,
                            std::int32_t* ids, float* weights, std::vector<float>& room) const {
  using Gate = RouteOptions::Gate;
  const auto size = static_cast<std::size_t>(num_experts);
  room.assign(logits, logits + num_experts);
  if (options.gate == Gate::kSoftmax) softmax(room.data(), num_experts);
  if (options.gate == Gate::kSigmoid) std::ranges::transform(room, room.begin(), sigmoid);
  room.resize(2 * size);
  float* scores = room.data() + size;
  for (std::size_t i = 0; i < size; ++i)
    scores[i] = room[i] + (options.choice_bias == nullptr ? 0.0f : options.choice_bias[i]);
  if (options.num_groups > 1) keep_best_groups(scores, num_experts, options);
  choose(scores, num_experts, options.num_chosen, ids);
  float sum = 0.0f;
  for (std::int64_t n = 0; n < options.num_chosen; ++n)
    sum += weights[n] = room[static_cast<std::size_t>(ids[n])];
  if (options.gate == Gate::kSoftmaxOfChosen) softmax(weights, options.num_chosen);
  constexpr float kSmallestSum = 6.103515625e-5f;
  for (std::int64_t n = 0; n < options.num_chosen; ++n) {
    if (options.normalise) weights[n] /= std::max(sum, kSmallestSum);
    weights[n] *= options.scale;
    if (options.expert_scale != nullptr) weights[n] *= options.expert_scale[ids[n]];
  }
}

void CpuGraphOps::route(MatrixView logits, const RouteOptions& options, std::span<std::int32_t> ids,
                        std::span<float> weights) {
  QUIRE_CHECK(std::ssize(ids) == logits.rows * options.num_chosen && ids.size() == weights.size() &&
                  options.num_chosen <= logits.cols,
              "route: shapes do not fit");
  std::vector<float> room;
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    const std::int64_t at = row * options.num_chosen;
    route_row(row_of(logits, row), logits.cols, options, ids.data() + at, weights.data() + at, room);
  }
}

void CpuGraphOps::expert_linear(std::span<const std::unique_ptr<Linear>> experts, std::span<const std::int32_t> ids,
                                std::int64_t rows_each, MatrixView x, MatrixView out) {
  QUIRE_CHECK(std::ssize(ids) == out.rows && out.rows == x.rows * rows_each, "expert_linear: shapes do not fit");
  order_.resize(ids.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, {}, [&](std::int32_t i) { return ids[static_cast<std::size_t>(i)]; });
  MatrixView gathered{gathered_.get<float>(static_cast<std::size_t>(out.rows * x.cols)), out.rows, x.cols, x.cols};
  MatrixView products{products_.get<float>(static_cast<std::size_t>(out.rows * out.cols)), out.rows, out.cols,
                      out.cols};
  for_rows(out.rows, x.cols, [&](std::int64_t i) {
    std::copy_n(row_of(x, order_[static_cast<std::size_t>(i)] / rows_each), x.cols, row_of(gathered, i));
  });
  for (std::size_t begin = 0; begin < order_.size();) {
    const auto expert = static_cast<std::size_t>(ids[static_cast<std::size_t>(order_[begin])]);
    std::size_t end = begin + 1;
    while (end < order_.size() && static_cast<std::size_t>(ids[static_cast<std::size_t>(order_[end])]) == expert)
      ++end;
    const auto part = [&](MatrixView view) {
      return MatrixView{row_of(view, static_cast<std::int64_t>(begin)), static_cast<std::int64_t>(end - begin),
                        view.cols, view.stride};
    };
    linear_.run(static_cast<const CpuLinear&>(*experts[expert]), part(gathered), part(products), false);
    begin = end;
  }
  for_rows(out.rows, out.cols, [&](std::int64_t i) {
    std::copy_n(row_of(products, i), out.cols, row_of(out, order_[static_cast<std::size_t>(i)]));
  });
}

void CpuGraphOps::combine(MatrixView x, std::span<const float> weights, MatrixView out) {
  const std::int64_t each = out.rows == 0 ? 0 : x.rows / out.rows;
  for_rows(out.rows, each * x.cols, [&](std::int64_t row) {
    float* to = row_of(out, row);
    for (std::int64_t j = 0; j < each; ++j) {
      const float* from = row_of(x, row * each + j);
      const float weight = weights[static_cast<std::size_t>(row * each + j)];
      for (std::int64_t i = 0; i < out.cols; ++i)
        to[i] = (j == 0 ? 0.0f : to[i]) + weight * from[i];
    }
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
