#include "kernels/cpu/cpu_attention.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/check.h"

namespace quire {
namespace {

// Tiles of an item for each K/V head: enough to reuse a partition's K and V, few enough to share the work out. A kernel
// that takes several at once prepares K and V for them once.
constexpr std::int64_t kMinItemTiles = 2;
constexpr std::int64_t kMaxItemTiles = 8;
// Units of each thread, where there is work for so many; the last ones decide how long threads wait for each other.
constexpr std::int64_t kUnitsPerThread = 12;
// Split sharing pays only while its states are small beside K and V.
constexpr std::int64_t kMaxSplitQueries = 1 << 19;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Rows of `group` query vectors each for about `queries` of them, as whole tiles where there are enough.
std::int64_t rows_of_items(std::int64_t queries, std::int64_t group, std::int64_t query_tile) {
  const std::int64_t rows = std::max<std::int64_t>(1, queries / group);
  const std::int64_t whole = query_tile / std::gcd(query_tile, group);
  return rows > whole ? rows / whole * whole : rows;
}

}  // namespace

void AttentionRunner::run(const CpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                          std::int64_t num_heads, float scale, MatrixView out) {
  const KvLayerShape& shape = kv.shape(layer);
  QUIRE_CHECK(shape.num_heads > 0 && num_heads % shape.num_heads == 0 && q.cols == num_heads * shape.key_dim &&
                  shape.value_dim == shape.key_dim && out.cols == q.cols,
              "attention: shapes do not fit");
  const std::int64_t group = num_heads / shape.num_heads;
  const std::int64_t padded_dim = ceil_div(shape.key_dim, 16) * 16;
  const Call call{&kv, layer, q, out, num_heads, shape.num_heads, group, shape.key_dim, padded_dim, scale};
  const std::int64_t least = std::max(kMinItemTiles, kernels_.tiles_together / 2);
  const std::int64_t most = std::max(kMaxItemTiles, kernels_.tiles_together);
  const std::int64_t item_queries = std::clamp(q.rows * num_heads / (kUnitsPerThread * pool_.size()),
                                               least * kernels_.query_tile, most * kernels_.query_tile);
  plan(batch, rows_of_items(item_queries, group, kernels_.query_tile), group, shape.num_heads);
  if (items_.empty()) return;
  const auto whole_units = static_cast<std::int64_t>(items_.size()) * shape.num_heads;
  const bool long_context = std::ranges::any_of(items_, [](const Item& item) { return item.partitions > 1; });
  const bool split = pool_.size() > 1 && long_context && whole_units < 4 * pool_.size() &&
                     num_states_ * kernels_.query_tile <= kMaxSplitQueries;
  plan_units(shape.num_heads, split);
  prepare_workers(call);
  if (split) {
    run_split(call);
  } else {
    run_whole(call);
  }
}

void AttentionRunner::plan(const AttentionBatch& batch, std::int64_t max_rows, std::int64_t group,
                           std::int64_t num_kv_heads) {
  items_.clear();
  num_states_ = 0;
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int64_t begin = batch.query_start[s];
    const std::int64_t end = batch.query_start[s + 1];
    const std::int64_t context = batch.context_len[s];
    for (std::int64_t row = begin; row < end; row += max_rows) {
      Item item;
      item.first_row = row;
      item.num_rows = std::min(max_rows, end - row);
      item.first_visible = batch.causal ? context - (end - row) + 1 : context;
      item.more_visible = batch.causal ? 1 : 0;
      item.block_table = batch.block_tables.data() + batch.block_table_start[s];
      item.partitions = ceil_div(item.first_visible + (item.num_rows - 1) * item.more_visible, kPartition);
      item.tiles = ceil_div(item.num_rows * group, kernels_.query_tile);
      item.first_state = num_states_;
      num_states_ += num_kv_heads * item.partitions * item.tiles;
      items_.push_back(item);
    }
  }
}

void AttentionRunner::plan_units(std::int64_t num_kv_heads, bool split) {
  units_.clear();
  std::int64_t num_parts = 0;
  for (const Item& item : items_)
    num_parts += split ? item.partitions : 1;
  // As many heads together as leave every thread some units.
  const std::int64_t together =
      std::clamp<std::int64_t>(num_kv_heads * num_parts / (2 * pool_.size()), 1, kHeadsTogether);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const std::int64_t step = items_[i].tiles == 1 ? together : 1;
    for (std::int64_t partition = 0; partition < (split ? items_[i].partitions : 1); ++partition) {
      for (std::int64_t head = 0; head < num_kv_heads; head += step)
        units_.push_back({static_cast<std::int64_t>(i), head, std::min(step, num_kv_heads - head), partition});
    }
  }
}

std::int64_t AttentionRunner::state_floats(std::int64_t padded_dim) const {
  return kernels_.query_tile * (padded_dim + 2);
}

SoftmaxState AttentionRunner::state_at(float* base, std::int64_t index, std::int64_t padded_dim) const {
  float* at = base + index * state_floats(padded_dim);
  return {at, at + kernels_.query_tile, at + 2 * kernels_.query_tile};
}

void AttentionRunner::reset(const SoftmaxState& state, std::int64_t padded_dim) const {
  std::fill_n(state.maximum, kernels_.query_tile, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, kernels_.query_tile, 0.0f);
  std::fill_n(state.weighted, kernels_.query_tile * padded_dim, 0.0f);
}

float* AttentionRunner::queries_at(const Call& call, const Worker& worker, std::int64_t index) const {
  return worker.queries + index * kernels_.query_tile * padded_depth(call.head_dim);
}

void AttentionRunner::prepare_workers(const Call& call) {
  workers_.resize(static_cast<std::size_t>(pool_.size()));
  std::int64_t tiles = kHeadsTogether;
  for (const Item& item : items_)
    tiles = std::max(tiles, item.tiles);
  const std::int64_t head_dim = call.head_dim;
  const std::int64_t scratch = kernels_.attend_scratch(head_dim);
  const std::int64_t queries = tiles * kernels_.query_tile * padded_depth(head_dim);
  const std::int64_t states = (kTilesTogether + tiles) * state_floats(call.padded_dim);
  for (Worker& worker : workers_) {
    worker.scratch = worker.memory.get<float>(static_cast<std::size_t>(scratch + queries + states));
    worker.queries = worker.scratch + scratch;
    worker.states = worker.queries + queries;
    worker.tiles.resize(static_cast<std::size_t>(tiles));
  }
}

// Query vectors of an item are ordered by row, then by head of the group. Packs them into `queries`.
QueryTile AttentionRunner::make_tile(const Call& call, const Item& item, std::int64_t kv_head, std::int64_t tile,
                                     float* queries) const {
  QueryTile out;
  const std::int64_t first = tile * kernels_.query_tile;
  const std::int64_t head_dim = call.head_dim;
  out.count = std::min(kernels_.query_tile, item.num_rows * call.group - first);
  out.scale = call.scale;
  out.queries = queries;
  const float* rows[kMaxQueryTile];
  for (std::int64_t i = 0; i < out.count; ++i) {
    const std::int64_t row = (first + i) / call.group;
    const std::int64_t head = kv_head * call.group + (first + i) % call.group;
    rows[i] = call.q.data + (item.first_row + row) * call.q.stride + head * head_dim;
    out.visible[i] = item.first_visible + row * item.more_visible;
    // Rows come from the caches of whoever computed them: all are on their way before the first is waited for.
    for (std::int64_t d = 0; d < head_dim; d += 16)
      __builtin_prefetch(rows[i] + d);
  }
  kernels_.pack_queries(rows, out.count, head_dim, call.scale, queries);
  return out;
}

void AttentionRunner::write_tile(const Call& call, const Item& item, std::int64_t kv_head, std::int64_t tile,
                                 const SoftmaxState& state) {
  const std::int64_t first = tile * kernels_.query_tile;
  const std::int64_t head_dim = call.head_dim;
  const std::int64_t count = std::min(kernels_.query_tile, item.num_rows * call.group - first);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = item.first_row + (first + i) / call.group;
    const std::int64_t head = kv_head * call.group + (first + i) % call.group;
    float* out = call.out.data + row * call.out.stride + head * head_dim;
    kernels_.finish(state.weighted + i * call.padded_dim, state.sum[i], head_dim, out);
  }
}

// The views of a unit's heads, and their only tiles to worker.tiles.
void AttentionRunner::make_head_tiles(const Call& call, const Unit& unit, Worker& worker, KvHeadView* views) const {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  for (std::int64_t h = 0; h < unit.num_heads; ++h) {
    views[h] = call.kv->head(call.layer, unit.first_head + h);
    worker.tiles[static_cast<std::size_t>(h)] =
        make_tile(call, item, unit.first_head + h, 0, queries_at(call, worker, h));
  }
}

void AttentionRunner::run_heads(const Call& call, const Unit& unit, Worker& worker) {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  KvHeadView views[kHeadsTogether];
  make_head_tiles(call, unit, worker, views);
  SoftmaxState parts[kHeadsTogether];
  SoftmaxState totals[kHeadsTogether];
  for (std::int64_t h = 0; h < unit.num_heads; ++h) {
    parts[h] = state_at(worker.states, h, call.padded_dim);
    totals[h] = state_at(worker.states, kHeadsTogether + h, call.padded_dim);
    reset(totals[h], call.padded_dim);
  }
  for (std::int64_t p = 0; p < item.partitions; ++p) {
    kernels_.attend(views, item.block_table, worker.tiles.data(), unit.num_heads, 1, p, worker.scratch, parts);
    for (std::int64_t h = 0; h < unit.num_heads; ++h)
      kernels_.merge(totals[h], parts[h], item.num_rows * call.group, call.padded_dim);
  }
  for (std::int64_t h = 0; h < unit.num_heads; ++h)
    write_tile(call, item, unit.first_head + h, 0, totals[h]);
}

// The tiles of one head to worker.tiles.
void AttentionRunner::make_tiles(const Call& call, const Unit& unit, Worker& worker) const {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  for (std::int64_t t = 0; t < item.tiles; ++t) {
    worker.tiles[static_cast<std::size_t>(t)] = make_tile(call, item, unit.first_head, t, queries_at(call, worker, t));
  }
}

// The first of worker.tiles that sees some of a partition: what tiles see never decreases.
std::int64_t AttentionRunner::first_tile(const Item& item, const Worker& worker, std::int64_t partition) const {
  std::int64_t t = 0;
  for (; t < item.tiles; ++t) {
    const QueryTile& tile = worker.tiles[static_cast<std::size_t>(t)];
    if (tile.visible[tile.count - 1] > partition * kPartition) break;
  }
  return t;
}

// All tiles of one head, partition by partition, so that its K and V stay in the cache for the tiles.
void AttentionRunner::run_tiles(const Call& call, const Unit& unit, Worker& worker) {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  const KvHeadView view = call.kv->head(call.layer, unit.first_head);
  const auto total = [&](std::int64_t t) { return state_at(worker.states, kTilesTogether + t, call.padded_dim); };
  SoftmaxState parts[kTilesTogether];
  for (std::int64_t i = 0; i < kernels_.tiles_together; ++i)
    parts[i] = state_at(worker.states, i, call.padded_dim);
  make_tiles(call, unit, worker);
  for (std::int64_t t = 0; t < item.tiles; ++t)
    reset(total(t), call.padded_dim);
  for (std::int64_t p = 0; p < item.partitions; ++p) {
    for (std::int64_t t = first_tile(item, worker, p); t < item.tiles; t += kernels_.tiles_together) {
      const QueryTile* tiles = &worker.tiles[static_cast<std::size_t>(t)];
      const std::int64_t count = std::min(kernels_.tiles_together, item.tiles - t);
      kernels_.attend(&view, item.block_table, tiles, 1, count, p, worker.scratch, parts);
      for (std::int64_t i = 0; i < count; ++i)
        kernels_.merge(total(t + i), parts[i], tiles[i].count, call.padded_dim);
    }
  }
  for (std::int64_t t = 0; t < item.tiles; ++t)
    write_tile(call, item, unit.first_head, t, total(t));
}

void AttentionRunner::run_whole(const Call& call) {
  pool_.run(static_cast<std::int64_t>(units_.size()), [&](int worker, std::int64_t index) {
    const Unit& unit = units_[static_cast<std::size_t>(index)];
    if (items_[static_cast<std::size_t>(unit.item)].tiles == 1) {
      run_heads(call, unit, workers_[static_cast<std::size_t>(worker)]);
    } else {
      run_tiles(call, unit, workers_[static_cast<std::size_t>(worker)]);
    }
  });
}

// One partition of a unit, each state to where state_of(head, tile) says.
template <class StateOf>
void AttentionRunner::run_partition(const Call& call, const Unit& unit, Worker& worker, const StateOf& state_of) {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  KvHeadView views[kHeadsTogether];
  SoftmaxState states[kTilesTogether];
  if (item.tiles == 1) {
    make_head_tiles(call, unit, worker, views);
    for (std::int64_t h = 0; h < unit.num_heads; ++h)
      states[h] = state_of(unit.first_head + h, std::int64_t{0});
    kernels_.attend(views, item.block_table, worker.tiles.data(), unit.num_heads, 1, unit.partition, worker.scratch,
                    states);
    return;
  }
  views[0] = call.kv->head(call.layer, unit.first_head);
  make_tiles(call, unit, worker);
  const std::int64_t first = first_tile(item, worker, unit.partition);
  for (std::int64_t t = 0; t < first; ++t)
    reset(state_of(unit.first_head, t), call.padded_dim);
  for (std::int64_t t = first; t < item.tiles; t += kernels_.tiles_together) {
    const std::int64_t count = std::min(kernels_.tiles_together, item.tiles - t);
    for (std::int64_t i = 0; i < count; ++i)
      states[i] = state_of(unit.first_head, t + i);
    kernels_.attend(views, item.block_table, &worker.tiles[static_cast<std::size_t>(t)], 1, count, unit.partition,
                    worker.scratch, states);
  }
}

void AttentionRunner::run_split(const Call& call) {
  float* states = states_.get<float>(static_cast<std::size_t>(num_states_ * state_floats(call.padded_dim)));
  const auto state_of = [&](const Item& item, std::int64_t kv_head, std::int64_t p, std::int64_t tile) {
    const std::int64_t index = item.first_state + (kv_head * item.partitions + p) * item.tiles + tile;
    return state_at(states, index, call.padded_dim);
  };
  pool_.run(static_cast<std::int64_t>(units_.size()), [&](int worker, std::int64_t index) {
    const Unit& unit = units_[static_cast<std::size_t>(index)];
    const Item& item = items_[static_cast<std::size_t>(unit.item)];
    run_partition(call, unit, workers_[static_cast<std::size_t>(worker)],
                  [&](std::int64_t head, std::int64_t tile) { return state_of(item, head, unit.partition, tile); });
  });
  pool_.run(static_cast<std::int64_t>(items_.size()) * call.num_kv_heads, [&](int worker, std::int64_t unit) {
    const Item& item = items_[static_cast<std::size_t>(unit / call.num_kv_heads)];
    const std::int64_t kv_head = unit % call.num_kv_heads;
    const SoftmaxState total = state_at(workers_[static_cast<std::size_t>(worker)].states, 0, call.padded_dim);
    const std::int64_t queries = item.num_rows * call.group;
    for (std::int64_t t = 0; t < item.tiles; ++t) {
      reset(total, call.padded_dim);
      const std::int64_t count = std::min(kernels_.query_tile, queries - t * kernels_.query_tile);
      for (std::int64_t p = 0; p < item.partitions; ++p)
        kernels_.merge(total, state_of(item, kv_head, p, t), count, call.padded_dim);
      write_tile(call, item, kv_head, t, total);
    }
  });
}

}  // namespace quire
