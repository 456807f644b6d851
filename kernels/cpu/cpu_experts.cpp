// Routing rows to experts and the products of each expert's rows.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/check.h"
#include "kernels/cpu/cpu_graph_ops.h"
#include "kernels/cpu/graph_math.h"

namespace quire {

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

}  // namespace quire
