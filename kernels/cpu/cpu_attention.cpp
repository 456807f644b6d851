#include "kernels/cpu/cpu_attention.h"

#include <algorithm>
#include <limits>

#include "kernels/check.h"

namespace quire {
namespace {

// Query vectors of an item: enough to reuse a partition's K and V from cache, few enough to share the work out.
constexpr std::int64_t kItemQueries = 64;
// Split sharing pays only while its states are small beside K and V.
constexpr std::int64_t kMaxSplitStates = 1 << 16;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t state_floats(std::int64_t padded_dim) {
  return kQueryTile * (padded_dim + 2);
}

}  // namespace

void AttentionRunner::run(const CpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                          std::int64_t num_heads, float scale, MatrixView out) {
  const KvLayout& layout = kv.layout();
  QUIRE_CHECK(num_heads % layout.num_kv_heads == 0 && q.cols == num_heads * layout.head_dim && out.cols == q.cols,
              "attention: shapes do not fit");
  const std::int64_t group = num_heads / layout.num_kv_heads;
  const std::int64_t padded_dim = ceil_div(layout.head_dim, 16) * 16;
  const Call call{&kv, layer, q, out, num_heads, layout.num_kv_heads, group, padded_dim, scale};
  plan(batch, std::max<std::int64_t>(1, kItemQueries / group), group, layout.num_kv_heads);
  if (items_.empty()) return;
  const auto whole_units = static_cast<std::int64_t>(items_.size()) * layout.num_kv_heads;
  const bool long_context = std::ranges::any_of(items_, [](const Item& item) { return item.partitions > 1; });
  const std::int64_t most_tiles = std::max(ceil_div(kItemQueries, kQueryTile), ceil_div(group, kQueryTile));
  prepare_workers(layout.head_dim, padded_dim, most_tiles);
  if (pool_.size() > 1 && long_context && whole_units < 4 * pool_.size() && num_states_ <= kMaxSplitStates) {
    run_split(call);
  } else {
    run_whole(call);
  }
}

void AttentionRunner::plan(const AttentionBatch& batch, std::int64_t max_rows, std::int64_t group,
                           std::int64_t num_kv_heads) {
  items_.clear();
  num_units_ = 0;
  num_states_ = 0;
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int64_t begin = batch.query_start[s];
    const std::int64_t end = batch.query_start[s + 1];
    const std::int64_t context = batch.context_len[s];
    for (std::int64_t row = begin; row < end; row += max_rows) {
      Item item;
      item.first_row = row;
      item.num_rows = std::min(max_rows, end - row);
      item.first_position = context - (end - row);
      item.block_table = batch.block_tables.data() + batch.block_table_start[s];
      item.partitions = ceil_div(item.first_position + item.num_rows, kPartition);
      item.first_unit = num_units_;
      item.first_state = num_states_;
      num_units_ += num_kv_heads * item.partitions;
      num_states_ += num_kv_heads * item.partitions * ceil_div(item.num_rows * group, kQueryTile);
      items_.push_back(item);
    }
  }
}

SoftmaxState AttentionRunner::state_at(float* base, std::int64_t index, std::int64_t padded_dim) const {
  float* at = base + index * state_floats(padded_dim);
  return {at, at + kQueryTile, at + 2 * kQueryTile};
}

// Per worker: packed queries, scores, one partition's state, and the running states of an item's tiles.
void AttentionRunner::prepare_workers(std::int64_t head_dim, std::int64_t padded_dim, std::int64_t tiles_per_item) {
  worker_scratch_.resize(static_cast<std::size_t>(pool_.size()));
  worker_memory_.resize(worker_scratch_.size());
  const std::int64_t floats =
      kQueryTile * (ceil_div(head_dim, 16) * 16 + kPartition) + (1 + tiles_per_item) * state_floats(padded_dim);
  for (std::size_t i = 0; i < worker_scratch_.size(); ++i) {
    worker_memory_[i] = worker_scratch_[i].get<float>(static_cast<std::size_t>(floats));
  }
}

// Query vectors of an item are ordered by row, then by head of the group.
QueryTile AttentionRunner::make_tile(const Call& call, const Item& item, std::int64_t kv_head,
                                     std::int64_t tile) const {
  QueryTile out;
  const std::int64_t first = tile * kQueryTile;
  const std::int64_t head_dim = call.kv->layout().head_dim;
  out.count = std::min<std::int64_t>(kQueryTile, item.num_rows * call.group - first);
  out.scale = call.scale;
  out.first = tile == 0;
  for (std::int64_t i = 0; i < out.count; ++i) {
    const std::int64_t row = (first + i) / call.group;
    const std::int64_t head = kv_head * call.group + (first + i) % call.group;
    out.query[i] = call.q.data + (item.first_row + row) * call.q.stride + head * head_dim;
    out.visible[i] = item.first_position + row + 1;
  }
  return out;
}

void AttentionRunner::write_tile(const Call& call, const Item& item, std::int64_t kv_head, std::int64_t tile,
                                 const SoftmaxState& state) {
  const std::int64_t first = tile * kQueryTile;
  const std::int64_t head_dim = call.kv->layout().head_dim;
  const std::int64_t count = std::min<std::int64_t>(kQueryTile, item.num_rows * call.group - first);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = item.first_row + (first + i) / call.group;
    const std::int64_t head = kv_head * call.group + (first + i) % call.group;
    float* out = call.out.data + row * call.out.stride + head * head_dim;
    kernels_.finish(state.weighted + i * call.padded_dim, state.sum[i], head_dim, out);
  }
}

namespace {

void reset(const SoftmaxState& state, std::int64_t padded_dim) {
  std::fill_n(state.maximum, kQueryTile, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, kQueryTile, 0.0f);
  std::fill_n(state.weighted, kQueryTile * padded_dim, 0.0f);
}

AttentionScratch scratch_at(float* memory, std::int64_t head_dim) {
  return {memory, memory + kQueryTile * ceil_div(head_dim, 16) * 16};
}

}  // namespace

void AttentionRunner::run_whole(const Call& call) {
  const std::int64_t head_dim = call.kv->layout().head_dim;
  pool_.run(static_cast<std::int64_t>(items_.size()) * call.num_kv_heads, [&](int worker, std::int64_t unit) {
    const Item& item = items_[static_cast<std::size_t>(unit / call.num_kv_heads)];
    const std::int64_t kv_head = unit % call.num_kv_heads;
    const KvHeadView view = call.kv->head(call.layer, kv_head);
    const AttentionScratch scratch = scratch_at(worker_memory_[static_cast<std::size_t>(worker)], head_dim);
    float* states = scratch.scores + kQueryTile * kPartition;
    const SoftmaxState part = state_at(states, 0, call.padded_dim);
    const std::int64_t tiles = ceil_div(item.num_rows * call.group, kQueryTile);
    for (std::int64_t t = 0; t < tiles; ++t)
      reset(state_at(states, 1 + t, call.padded_dim), call.padded_dim);
    for (std::int64_t p = 0; p < item.partitions; ++p) {
      for (std::int64_t t = 0; t < tiles; ++t) {
        const QueryTile tile = make_tile(call, item, kv_head, t);
        if (tile.visible[tile.count - 1] <= p * kPartition) continue;
        kernels_.attend(view, item.block_table, tile, p, scratch, part);
        kernels_.merge(state_at(states, 1 + t, call.padded_dim), part, tile.count, call.padded_dim);
      }
    }
    for (std::int64_t t = 0; t < tiles; ++t)
      write_tile(call, item, kv_head, t, state_at(states, 1 + t, call.padded_dim));
  });
}

void AttentionRunner::run_split(const Call& call) {
  const std::int64_t head_dim = call.kv->layout().head_dim;
  float* states = states_.get<float>(static_cast<std::size_t>(num_states_ * state_floats(call.padded_dim)));
  const auto state_index = [&](const Item& item, std::int64_t kv_head, std::int64_t p, std::int64_t tile) {
    const std::int64_t tiles = ceil_div(item.num_rows * call.group, kQueryTile);
    return item.first_state + (kv_head * item.partitions + p) * tiles + tile;
  };
  pool_.run(num_units_, [&](int worker, std::int64_t unit) {
    const auto after = std::ranges::upper_bound(items_, unit, {}, &Item::first_unit);
    const Item& item = *(after - 1);
    const std::int64_t kv_head = (unit - item.first_unit) / item.partitions;
    const std::int64_t p = (unit - item.first_unit) % item.partitions;
    const KvHeadView view = call.kv->head(call.layer, kv_head);
    const AttentionScratch scratch = scratch_at(worker_memory_[static_cast<std::size_t>(worker)], head_dim);
    for (std::int64_t t = 0; t * kQueryTile < item.num_rows * call.group; ++t) {
      const QueryTile tile = make_tile(call, item, kv_head, t);
      const SoftmaxState state = state_at(states, state_index(item, kv_head, p, t), call.padded_dim);
      if (tile.visible[tile.count - 1] <= p * kPartition) {
        std::fill_n(state.sum, kQueryTile, 0.0f);
      } else {
        kernels_.attend(view, item.block_table, tile, p, scratch, state);
      }
    }
  });
  pool_.run(static_cast<std::int64_t>(items_.size()) * call.num_kv_heads, [&](int worker, std::int64_t unit) {
    const Item& item = items_[static_cast<std::size_t>(unit / call.num_kv_heads)];
    const std::int64_t kv_head = unit % call.num_kv_heads;
    const AttentionScratch scratch = scratch_at(worker_memory_[static_cast<std::size_t>(worker)], head_dim);
    const SoftmaxState total = state_at(scratch.scores + kQueryTile * kPartition, 0, call.padded_dim);
    const std::int64_t queries = item.num_rows * call.group;
    for (std::int64_t t = 0; t * kQueryTile < queries; ++t) {
      reset(total, call.padded_dim);
      const std::int64_t count = std::min<std::int64_t>(kQueryTile, queries - t * kQueryTile);
      for (std::int64_t p = 0; p < item.partitions; ++p) {
        kernels_.merge(total, state_at(states, state_index(item, kv_head, p, t), call.padded_dim), count,
                       call.padded_dim);
      }
      write_tile(call, item, kv_head, t, total);
    }
  });
}

}  // namespace quire
