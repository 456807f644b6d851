// Routing rows to experts, and the experts' feed-forwards as one operation over rows that are ordered by expert.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/check.h"
#include "kernels/cpu/cpu_graph_ops.h"
#include "kernels/cpu/graph_math.h"

namespace quire {

namespace {

constexpr std::int64_t kRouteGrain = 16384;  // comparisons that are worth a thread's waking

// The `count` largest of `scores` in descending order, the lower index first among equals.
void choose(std::span<const float> scores, std::int64_t count, std::vector<char>& is_taken, std::int32_t* out) {
  is_taken.assign(scores.size(), 0);
  for (std::int64_t n = 0; n < count; ++n) {
    std::size_t best = scores.size();
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (is_taken[i] == 0 && (best == scores.size() || scores[i] > scores[best])) best = i;
    }
    is_taken[best] = 1;
    out[n] = static_cast<std::int32_t>(best);
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
void keep_best_groups(const RouteOptions& options, CpuGraphOps::RouteRoom& room) {
  const std::size_t size = room.scores.size() / static_cast<std::size_t>(options.num_groups);
  room.of_group.clear();
  for (std::size_t first = 0; first < room.scores.size(); first += size) {
    float best[2] = {-INFINITY, -INFINITY};
    for (const float score : std::span(room.scores).subspan(first, size)) {
      if (score > best[0]) {
        best[1] = best[0];
        best[0] = score;
      } else {
        best[1] = std::max(best[1], score);
      }
    }
    room.of_group.push_back(size > 1 ? best[0] + best[1] : best[0]);
  }
  room.kept.resize(static_cast<std::size_t>(options.num_groups_chosen));
  choose(room.of_group, options.num_groups_chosen, room.is_taken, room.kept.data());
  for (std::size_t i = 0; i < room.scores.size(); ++i) {
    if (std::ranges::find(room.kept, static_cast<std::int32_t>(i / size)) == room.kept.end())
      room.scores[i] = -INFINITY;
  }
}

// In the order of the choice: the nearer logits are of experts that no earlier place has taken.
void weigh_as_mixer(std::span<const float> logits, const RouteOptions& options, const std::int32_t* ids,
                    float* weights) {
  for (std::int64_t n = 0; n < options.num_chosen; ++n) {
    const float own = logits[static_cast<std::size_t>(ids[n])];
    float sum = 0.0f;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (std::find(ids, ids + n, static_cast<std::int32_t>(i)) != ids + n) continue;
      if (own - logits[i] <= options.mixer_share * std::max(std::fabs(logits[i]), own))
        sum += std::exp(logits[i] - own);
    }
    weights[n] = 1.0f / sum;
  }
}

void route_row(std::span<const float> logits, const RouteOptions& options, std::int32_t* ids, float* weights,
               CpuGraphOps::RouteRoom& room) {
  using Gate = RouteOptions::Gate;
  room.gates.assign(logits.begin(), logits.end());
  if (options.gate == Gate::kSoftmax) softmax(room.gates.data(), std::ssize(room.gates));
  if (options.gate == Gate::kSigmoid) std::ranges::transform(room.gates, room.gates.begin(), sigmoid);
  room.scores = room.gates;
  for (std::size_t i = 0; i < room.scores.size() && options.choice_bias != nullptr; ++i)
    room.scores[i] += options.choice_bias[i];
  if (options.num_groups > 1) keep_best_groups(options, room);
  choose(room.scores, options.num_chosen, room.is_taken, ids);
  for (std::int64_t n = 0; n < options.num_chosen; ++n)
    weights[n] = room.gates[static_cast<std::size_t>(ids[n])];
  if (options.gate == Gate::kSoftmaxOfChosen) softmax(weights, options.num_chosen);
  if (options.gate == Gate::kSparseMixer) weigh_as_mixer(logits, options, ids, weights);
  float sum = 0.0f;
  for (std::int64_t n = 0; n < options.num_chosen; ++n)
    sum += weights[n];
  constexpr float kSmallestSum = 6.103515625e-5f;
  for (std::int64_t n = 0; n < options.num_chosen; ++n) {
    if (options.normalise) weights[n] /= std::max(sum, kSmallestSum);
    weights[n] *= options.scale;
    if (options.expert_scale != nullptr) weights[n] *= options.expert_scale[ids[n]];
  }
}

}  // namespace

void CpuGraphOps::route(MatrixView logits, const RouteOptions& options, std::span<std::int32_t> ids,
                        std::span<float> weights) {
  QUIRE_CHECK(std::ssize(ids) == logits.rows * options.num_chosen && ids.size() == weights.size() &&
                  options.num_chosen <= logits.cols,
              "route: shapes do not fit");
  const std::int64_t step = std::max<std::int64_t>(1, kRouteGrain / (logits.cols * (options.num_chosen + 8)));
  pool_.run((logits.rows + step - 1) / step, [&](int worker, std::int64_t piece) {
    RouteRoom& room = route_rooms_[static_cast<std::size_t>(worker)];
    for (std::int64_t row = piece * step; row < std::min(logits.rows, (piece + 1) * step); ++row) {
      const std::int64_t at = row * options.num_chosen;
      route_row({row_of(logits, row), static_cast<std::size_t>(logits.cols)}, options, ids.data() + at,
                weights.data() + at, room);
    }
  });
}

// --- feed-forwards ---------------------------------------------------------------------------------------------------

// Choices to the order of their experts, those of one expert in the order of their rows.
void CpuGraphOps::group_by_expert(std::span<const std::int32_t> ids, std::int64_t num_chosen) {
  const auto expert_of = [&](std::int32_t choice) { return ids[static_cast<std::size_t>(choice)]; };
  order_.resize(ids.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, {}, [&](std::int32_t choice) { return std::pair(expert_of(choice), choice); });
  sources_.resize(ids.size());
  places_.resize(ids.size());
  expert_rows_.clear();
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    const auto expert = static_cast<std::size_t>(expert_of(order_[i]));
    sources_[i] = static_cast<std::int32_t>(order_[i] / num_chosen);
    places_[static_cast<std::size_t>(order_[i])] = static_cast<std::int32_t>(i);
    if (expert_rows_.empty() || expert_rows_.back().expert != expert) expert_rows_.push_back({expert, place, place});
    ++expert_rows_.back().end;
  }
}

void CpuGraphOps::experts(const ExpertArgs& args, std::span<const std::int32_t> ids, std::span<const float> weights,
                          MatrixView x, MatrixView gate_up, MatrixView results, MatrixView out) {
  const auto num_choices = std::ssize(ids);
  QUIRE_CHECK(ids.size() == weights.size() && num_choices == gate_up.rows && num_choices == results.rows &&
                  x.rows == out.rows && results.cols == out.cols,
              "experts: shapes do not fit");
  if (x.rows == 0) return;
  group_by_expert(ids, num_choices / x.rows);
  const auto part = [](MatrixView view, const ExpertRows& rows) {
    return MatrixView{row_of(view, rows.begin), rows.end - rows.begin, view.cols, view.stride};
  };
  const auto packed = [](const std::unique_ptr<Linear>& linear) { return static_cast<const CpuLinear*>(linear.get()); };
  jobs_.clear();
  for (const ExpertRows& rows : expert_rows_) {
    const auto sources = std::span(sources_).subspan(static_cast<std::size_t>(rows.begin),
                                                     static_cast<std::size_t>(rows.end - rows.begin));
    jobs_.push_back({packed(args.gate_up[rows.expert]), x, sources, part(gate_up, rows)});
  }
  linear_.run_jobs(jobs_, false);
  const std::int64_t width = args.gated ? gate_up.cols / 2 : gate_up.cols;
  const MatrixView activated{gate_up.data, num_choices, width, gate_up.stride};
  const bool is_swiglu = args.gated && args.activation.kind == Nonlinearity::kSilu && args.activation.limit == 0.0f;
  if (!is_swiglu) {
    const MatrixView up{gate_up.data + width, num_choices, width, gate_up.stride};
    activate(args.activation, activated, args.gated ? up : MatrixView{}, activated);
  }
  jobs_.clear();
  for (const ExpertRows& rows : expert_rows_) {
    const ProductInput in = is_swiglu ? gated(part(gate_up, rows)) : ProductInput(part(activated, rows));
    jobs_.push_back({.weights = packed(args.down[rows.expert]), .x = in, .out = part(results, rows)});
  }
  linear_.run_jobs(jobs_, false);
  combine(results, weights, out);
}

void CpuGraphOps::combine(MatrixView results, std::span<const float> weights, MatrixView out) {
  const std::int64_t each = results.rows / out.rows;
  for_rows(out.rows, each * out.cols, [&](std::int64_t row) {
    float* to = row_of(out, row);
    for (std::int64_t j = 0; j < each; ++j) {
      const auto choice = static_cast<std::size_t>(row * each + j);
      const float* from = row_of(results, places_[choice]);
      const float weight = weights[choice];
      if (j == 0) {
        kernels_.scale(from, weight, out.cols, to);
      } else {
        kernels_.add_scaled(from, weight, out.cols, to);
      }
    }
  });
}

void CpuGraphOps::head_linear(std::span<const std::unique_ptr<Linear>> heads, MatrixView x, MatrixView out) {
  const auto num_heads = std::ssize(heads);
  const std::int64_t from = x.cols / num_heads;
  const std::int64_t to = out.cols / num_heads;
  jobs_.clear();
  for (std::int64_t head = 0; head < num_heads; ++head) {
    const auto* linear = static_cast<const CpuLinear*>(heads[static_cast<std::size_t>(head)].get());
    jobs_.push_back({.weights = linear,
                     .x = MatrixView{x.data + head * from, x.rows, linear->in_features(), x.stride},
                     .out = {out.data + head * to, out.rows, linear->out_features(), out.stride}});
  }
  linear_.run_jobs(jobs_, false);
}

}  // namespace quire
