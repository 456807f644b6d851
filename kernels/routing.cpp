#include "kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernels/backend.h"
#include "kernels/check.h"

namespace quire {
namespace {

float sigmoid_of_gate(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

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
void keep_best_groups(const RouteOptions& options, RouteRoom& room) {
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

// Weighs in the order of the choice: a logit's neighbours are experts that no earlier place has taken.
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

}  // namespace

void route_row(std::span<const float> logits, const RouteOptions& options, std::int32_t* ids, float* weights,
               RouteRoom& room) {
  using Gate = RouteOptions::Gate;
  room.gates.assign(logits.begin(), logits.end());
  if (options.gate == Gate::kSoftmax) softmax(room.gates.data(), std::ssize(room.gates));
  if (options.gate == Gate::kSigmoid) std::ranges::transform(room.gates, room.gates.begin(), sigmoid_of_gate);
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

void ExpertOrder::group(std::span<const std::int32_t> ids, std::int64_t num_chosen,
                        std::span<const std::int32_t> row_changes) {
  const auto expert_of = [&](std::int32_t choice) { return ids[static_cast<std::size_t>(choice)]; };
  choices.resize(ids.size());
  std::iota(choices.begin(), choices.end(), 0);
  const auto change_of = [&](std::int32_t choice) {
    return row_changes.empty() ? 0 : row_changes[static_cast<std::size_t>(choice / num_chosen)];
  };
  std::ranges::sort(choices, {},
                    [&](std::int32_t choice) { return std::tuple(expert_of(choice), change_of(choice), choice); });
  sources.resize(ids.size());
  places.resize(ids.size());
  rows.clear();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    const auto expert = static_cast<std::size_t>(expert_of(choices[i]));
    sources[i] = static_cast<std::int32_t>(choices[i] / num_chosen);
    places[static_cast<std::size_t>(choices[i])] = static_cast<std::int32_t>(i);
    if (rows.empty() || rows.back().expert != expert) rows.push_back({expert, place, place});
    ++rows.back().end;
  }
}

void check_route_shapes(const MatrixView& logits, const RouteOptions& options) {
  QUIRE_CHECK(options.num_chosen >= 1 && options.num_chosen <= logits.cols && logits.cols % options.num_groups == 0 &&
                  options.num_groups_chosen <= options.num_groups,
              "route: shapes do not fit");
}

void check_expert_shapes(const ExpertChoices& choices, const MatrixView& x, const MatrixView& gate_up,
                         const MatrixView& results, const MatrixView& out) {
  const std::int64_t count = choices.count();
  QUIRE_CHECK(choices.num_rows == x.rows && count == gate_up.rows && count == results.rows && x.rows == out.rows &&
                  results.cols == out.cols,
              "experts: shapes do not fit");
}

bool is_swiglu(const ExpertArgs& args) {
  return args.gated && args.activation.kind == Nonlinearity::kSilu && args.activation.limit == 0.0f;
}

}  // namespace quire
