// Routing of rows to experts, and the order in which experts compute them. The formulas and the order of the choice are
// those of kernels/routing.cpp, exponentials the kernels' own; ties go to the lower index.
// Invariant: the order of a row's sums depends on the number of experts alone.
#pragma once

#include "kernels/gpu/kernels/expert_rows.h"
#include "kernels/gpu/kernels/graph_rows.h"
#include "kernels/graph_ops.h"

namespace quire::gpu {

struct RouteArgs {
  const float* logits = nullptr;
  std::int64_t stride = 0;
  std::int64_t num_experts = 0;
  RouteOptions options = {};
  float* groups = nullptr;      // room: [rows][num_groups]
  std::int32_t* ids = nullptr;  // [rows][num_chosen]
  float* weights = nullptr;     // [rows][num_chosen]
};

// A warp computes a row. A lane computes the scores of every 32nd expert as often as they are asked for: they are kept
// nowhere.
struct Route {
  using Args = RouteArgs;
  using Gate = RouteOptions::Gate;
  static constexpr int kThreads = 32;
  static constexpr int kSharedBytes = 0;

  // A place in the order of a choice.
  struct Ranked {
    float score;
    std::int32_t index;

    QUIRE_DEVICE bool before(const Ranked& other) const {
      return score > other.score || (score == other.score && index < other.index);
    }
  };
  static QUIRE_DEVICE float infinity() { return float_of_bits(0x7f800000u); }
  static QUIRE_DEVICE Ranked before_all() { return {infinity(), -1}; }
  static QUIRE_DEVICE Ranked behind_all() { return {-infinity(), 0x7fffffff}; }

  // Values of a row that all its lanes hold.
  struct Row {
    const Args& args;
    const float* logits;
    const float* groups;
    float largest = 0.0f;
    float sum = 1.0f;
    Ranked last_group = behind_all();  // last group that is kept

    QUIRE_DEVICE float gate(std::int64_t i) const {
      if (args.options.gate == Gate::kSoftmax) return exp_of(logits[i] - largest) / sum;
      if (args.options.gate == Gate::kSigmoid) return sigmoid_of(logits[i]);
      return logits[i];
    }
    // A NaN comes last, so that every expert has a place.
    QUIRE_DEVICE float score(std::int64_t i) const {
      float score = gate(i);
      if (args.options.choice_bias != nullptr) score = score + args.options.choice_bias[i];
      return score == score ? score : -infinity();
    }
    QUIRE_DEVICE float score_in_kept(std::int64_t i) const {
      if (args.options.num_groups > 1) {
        const std::int64_t group = i / (args.num_experts / args.options.num_groups);
        if (last_group.before({groups[group], static_cast<std::int32_t>(group)})) return -infinity();
      }
      return score(i);
    }
  };

  // The first of `count` places behind `last`.
  template <class Thread, class ScoreOf>
  static QUIRE_DEVICE Ranked next(Thread& t, std::int64_t count, const Ranked& last, const ScoreOf& score_of) {
    Ranked best = behind_all();
    for (std::int64_t i = t.lane(); i < count; i += kWarpLanes) {
      const Ranked one{score_of(i), static_cast<std::int32_t>(i)};
      if (last.before(one) && one.before(best)) best = one;
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      const Ranked other{t.shuffle_xor(best.score, distance), t.shuffle_xor(best.index, distance)};
      if (other.before(best)) best = other;
    }
    return best;
  }

  template <class Thread>
  static QUIRE_DEVICE void prepare_softmax(Thread& t, Row& row) {
    float largest = -infinity();
    for (std::int64_t i = t.lane(); i < row.args.num_experts; i += kWarpLanes)
      largest = greatest(row.logits[i], largest);
    for (int distance = 16; distance > 0; distance /= 2)
      largest = greatest(largest, t.shuffle_xor(largest, distance));
    float sum = 0.0f;
    for (std::int64_t i = t.lane(); i < row.args.num_experts; i += kWarpLanes)
      sum = sum + exp_of(row.logits[i] - largest);
    row.largest = largest;
    row.sum = warp_sum(t, sum);
  }

  template <class Thread>
  static QUIRE_DEVICE float warp_sum(Thread& t, float sum) {
    for (int distance = 16; distance > 0; distance /= 2)
      sum = sum + t.shuffle_xor(sum, distance);
    return sum;
  }

  // A group is as good as its two best experts together.
  template <class Thread>
  static QUIRE_DEVICE void keep_best_groups(Thread& t, Row& row, float* groups) {
    const std::int64_t count = row.args.options.num_groups;
    const std::int64_t size = row.args.num_experts / count;
    // Iterates from the last: another lane reads each value than writes it.
    for (std::int64_t group = count - 1 - t.lane(); group >= 0; group -= kWarpLanes) {
      float best = -infinity();
      float second = -infinity();
      for (std::int64_t i = group * size; i < (group + 1) * size; ++i) {
        const float score = row.score(i);
        second = score > best ? best : greatest(second, score);
        best = greatest(best, score);
      }
      groups[group] = size > 1 ? best + second : best;
    }
    t.sync_warp();  // makes the groups' scores visible to all lanes
    Ranked last = before_all();
    for (std::int64_t n = 0; n < row.args.options.num_groups_chosen; ++n)
      last = next(t, count, last, [&](std::int64_t i) { return row.groups[i]; });
    row.last_group = last;
  }

  // The softmax of a chosen expert among those near it that no earlier place has taken.
  template <class Thread>
  static QUIRE_DEVICE float mixer_weight(Thread& t, const Row& row, const Ranked& chosen) {
    const float own = row.logits[chosen.index];
    float sum = 0.0f;
    for (std::int64_t i = t.lane(); i < row.args.num_experts; i += kWarpLanes) {
      const Ranked one{row.score_in_kept(i), static_cast<std::int32_t>(i)};
      if (one.before(chosen)) continue;
      const float x = row.logits[i];
      const float size = greatest(x < 0.0f ? -x : x, own);
      if (own - x <= row.args.options.mixer_share * size) sum = sum + exp_of(x - own);
    }
    return 1.0f / warp_sum(t, sum);
  }

  // Runs on the lane that wrote the weights.
  static QUIRE_DEVICE void finish(const RouteOptions& options, const std::int32_t* ids, float* weights) {
    const std::int64_t count = options.num_chosen;
    if (options.gate == Gate::kSoftmaxOfChosen) {
      float largest = weights[0];
      for (std::int64_t n = 1; n < count; ++n)
        largest = greatest(largest, weights[n]);
      float sum = 0.0f;
      for (std::int64_t n = 0; n < count; ++n)
        sum = sum + (weights[n] = exp_of(weights[n] - largest));
      for (std::int64_t n = 0; n < count; ++n)
        weights[n] = weights[n] / sum;
    }
    float sum = 0.0f;
    for (std::int64_t n = 0; n < count; ++n)
      sum = sum + weights[n];
    for (std::int64_t n = 0; n < count; ++n) {
      float weight = weights[n];
      if (options.normalise) weight = weight / greatest(sum, 6.103515625e-5f);
      weight = weight * options.scale;
      if (options.expert_scale != nullptr) weight = weight * options.expert_scale[ids[n]];
      weights[n] = weight;
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    float* groups = args.groups + t.block_x() * args.options.num_groups;
    Row row{args, args.logits + t.block_x() * args.stride, groups};
    std::int32_t* ids = args.ids + t.block_x() * args.options.num_chosen;
    float* weights = args.weights + t.block_x() * args.options.num_chosen;
    if (args.options.gate == Gate::kSoftmax) prepare_softmax(t, row);
    if (args.options.num_groups > 1) keep_best_groups(t, row, groups);
    Ranked last = before_all();
    for (std::int64_t n = 0; n < args.options.num_chosen; ++n) {
      last = next(t, args.num_experts, last, [&](std::int64_t i) { return row.score_in_kept(i); });
      const float weight = args.options.gate == Gate::kSparseMixer ? mixer_weight(t, row, last) : row.gate(last.index);
      if (t.lane() == 0) {
        ids[n] = last.index;
        weights[n] = weight;
      }
    }
    if (t.lane() == 0) finish(args.options, ids, weights);
  }
};

// The sum of the lanes before this one; total: of all.
template <class Thread>
QUIRE_DEVICE std::int32_t sum_before(Thread& t, std::int32_t value, std::int32_t& total) {
  std::int32_t before = 0;
  total = value;
  for (int distance = 1; distance < kWarpLanes; distance *= 2) {
    const std::int32_t other = t.shuffle_xor(total, distance);
    if ((t.lane() & distance) != 0) before += other;
    total += other;
  }
  return before;
}

struct GroupChoicesArgs {
  const std::int32_t* ids = nullptr;  // [num_choices]
  std::int64_t num_choices = 0;
  std::int64_t num_chosen = 0;  // per row
  std::int64_t num_experts = 0;
  ExpertRange* ranges = nullptr;    // [num_experts], but for their tiles
  std::int32_t* sources = nullptr;  // [num_choices] by place: the row
  std::int32_t* experts = nullptr;  // [num_choices] by place
  std::int32_t* places = nullptr;   // [num_choices] by choice
};

// A warp serves each expert; a lane goes through a run of choices.
struct GroupChoices {
  using Args = GroupChoicesArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const auto expert = static_cast<std::int32_t>(t.block_x() * (kThreads / kWarpLanes) + t.warp());
    if (expert >= args.num_experts) return;  // the whole warp
    const std::int64_t each = (args.num_choices + kWarpLanes - 1) / kWarpLanes;
    const std::int64_t begin = t.lane() * each;
    const std::int64_t end = begin + each < args.num_choices ? begin + each : args.num_choices;
    std::int32_t lower = 0;
    std::int32_t own = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      lower += args.ids[i] < expert ? 1 : 0;
      own += args.ids[i] == expert ? 1 : 0;
    }
    std::int32_t first = 0;
    sum_before(t, lower, first);
    std::int32_t count = 0;
    std::int32_t place = first + sum_before(t, own, count);
    if (t.lane() == 0) args.ranges[expert] = {first, count, 0};
    for (std::int64_t i = begin; i < end; ++i) {
      if (args.ids[i] != expert) continue;
      args.sources[place] = static_cast<std::int32_t>(i / args.num_chosen);
      args.experts[place] = expert;
      args.places[i] = place;
      ++place;
    }
  }
};

struct PlanExpertsArgs {
  ExpertRange* ranges = nullptr;
  std::int64_t num_experts = 0;
  std::int32_t item_rows = 0;  // rows of an item, a multiple of eight
  std::int64_t num_items = 0;  // the largest number of items
  ExpertItem* items = nullptr;
};

// A warp plans: a lane goes through a run of experts.
struct PlanExperts {
  using Args = PlanExpertsArgs;
  static constexpr int kThreads = 32;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t each = (args.num_experts + kWarpLanes - 1) / kWarpLanes;
    const std::int64_t begin = t.lane() * each;
    const std::int64_t end = begin + each < args.num_experts ? begin + each : args.num_experts;
    const std::int32_t rows = args.item_rows;
    std::int32_t num_tiles = 0;
    std::int32_t num_items = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      num_tiles += (args.ranges[i].count + 7) / 8;
      num_items += (args.ranges[i].count + rows - 1) / rows;
    }
    std::int32_t all = 0;
    std::int32_t tile = sum_before(t, num_tiles, all);
    std::int32_t item = sum_before(t, num_items, all);
    for (std::int64_t i = begin; i < end; ++i) {
      const ExpertRange range = args.ranges[i];
      args.ranges[i].first_tile = tile;
      for (std::int32_t row = 0; row < range.count; row += rows) {
        const std::int32_t left = range.count - row;
        args.items[item++] = {static_cast<std::int32_t>(i), tile + row / 8, range.begin + row,
                              left < rows ? left : rows};
      }
      tile += (range.count + 7) / 8;
    }
    for (std::int64_t i = all + t.lane(); i < args.num_items; i += kWarpLanes)
      args.items[i] = {0, 0, 0, 0};
  }
};

}  // namespace quire::gpu
