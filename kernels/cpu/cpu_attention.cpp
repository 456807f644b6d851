#include "kernels/cpu/cpu_attention.h"

#include <algorithm>
#include <limits>

#include "kernels/check.h"
#include "kernels/cpu/rows/graph_math.h"

namespace quire {
namespace {

// Tiles [begin, end) of an item.
struct TileRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The tiles that see some of a partition: neither the first nor the last token that tiles see ever decreases.
TileRange tiles_that_see(const std::vector<QueryTile>& tiles, std::int64_t count, std::int64_t partition) {
  const auto tile = [&](std::int64_t t) -> const QueryTile& { return tiles[static_cast<std::size_t>(t)]; };
  TileRange out{0, count};
  while (out.begin < count && tile(out.begin).visible[tile(out.begin).count - 1] <= partition * kPartition)
    ++out.begin;
  while (out.end > out.begin && tile(out.end - 1).mask != nullptr &&
         tile(out.end - 1).mask->first[0] >= (partition + 1) * kPartition)
    --out.end;
  return out;
}

}  // namespace

AttentionRunner::Call AttentionRunner::call_of(const CpuKvStorage& kv, std::int64_t layer, MatrixView q,
                                               const AttentionOptions& options, MatrixView out) const {
  const KvLayerShape& shape = kv.shape(layer);
  const std::int64_t value_dim = out.cols / options.num_heads;
  QUIRE_CHECK(shape.num_heads > 0 && options.num_heads % shape.num_heads == 0 &&
                  q.cols == options.num_heads * shape.key_dim &&
                  (options.value_in_key ? value_dim <= shape.key_dim : value_dim == shape.value_dim),
              "attention: shapes do not fit");
  const bool masked = options.window > 0 || options.chunk > 0 || options.softcap > 0.0f || options.sinks != nullptr ||
                      options.alibi > 0.0f || options.value_in_key || value_dim != shape.key_dim;
  const KvDType dtype = kv.layout().dtype;
  const bool rotated = dtype == KvDType::kI4;
  const AttendKernel& kernel = masked || rotated ? kernels_.attend_masked : kernels_.attend;
  Call call{.kv = &kv,
            .layer = layer,
            .q = q,
            .out = out,
            .options = &options,
            .kernel = &kernel,
            .num_groups = shape.num_heads,
            .groups_each = 1,
            .group = options.num_heads / shape.num_heads,
            .head_dim = shape.key_dim,
            .value_dim = value_dim,
            .padded_dim = padded_value_dim(dtype, value_dim),
            .masked = masked,
            .rotated = rotated};
  // Many heads on one of K and V are work for several threads.
  if (options.value_in_key && call.group % kernel.query_tile == 0) {
    call.groups_each = call.group / kernel.query_tile;
    call.group = kernel.query_tile;
    call.num_groups *= call.groups_each;
  }
  return call;
}

void AttentionRunner::run(const CpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                          const AttentionOptions& options, MatrixView out) {
  const Call call = call_of(kv, layer, q, options, out);
  batch_ = batch;
  plan(call, batch);
  if (items_.empty()) return;
  const bool split = pays_to_split(call);
  plan_units(call.num_groups, split);
  prepare_workers(call);
  if (levels_.size() > 1) {
    const std::int64_t totals = q.rows * options.num_heads * (call.padded_dim + 2);
    totals_ = totals_memory_.get<float>(static_cast<std::size_t>(totals));
  }
  if (split) {
    run_split(call);
  } else {
    run_whole(call);
  }
}

std::int64_t AttentionRunner::state_floats(const Call& call) const {
  return call.kernel->query_tile * (call.padded_dim + 2);
}

SoftmaxState AttentionRunner::state_at(const Call& call, float* base, std::int64_t index) const {
  float* at = base + index * state_floats(call);
  return {at, at + call.kernel->query_tile, at + 2 * call.kernel->query_tile};
}

void AttentionRunner::reset(const Call& call, const SoftmaxState& state) const {
  const std::int64_t queries = call.kernel->query_tile;
  std::fill_n(state.maximum, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, queries, 0.0f);
  std::fill_n(state.weighted, queries * call.padded_dim, 0.0f);
}

void AttentionRunner::begin_tile(const Call& call, const Item& item, std::int64_t group, std::int64_t tile,
                                 const SoftmaxState& state) const {
  constexpr float kLog2E = 1.44269504f;
  reset(call, state);
  const std::int64_t first = tile * call.kernel->query_tile;
  const std::int64_t count = std::min(call.kernel->query_tile, item.num_rows * call.group - first);
  for (std::int64_t i = 0; !item.is_first && i < count; ++i) {
    const std::int32_t row = rows_[static_cast<std::size_t>(item.first + (first + i) / call.group)];
    const float* total = total_of(call, row, group * call.group + (first + i) % call.group);
    state.maximum[i] = total[0];
    state.sum[i] = total[1];
    std::copy_n(total + 2, call.padded_dim, state.weighted + i * call.padded_dim);
  }
  if (!item.is_first || call.options->sinks == nullptr) return;
  for (std::int64_t i = 0; i < count; ++i) {
    state.maximum[i] = call.options->sinks[group * call.group + (first + i) % call.group] * kLog2E;
    state.sum[i] = 1.0f;
  }
}

float* AttentionRunner::queries_at(const Call& call, const Worker& worker, std::int64_t index) const {
  return worker.queries + index * call.kernel->query_tile * padded_depth(call.head_dim);
}

KvHeadView AttentionRunner::view_of(const Call& call, std::int64_t group) const {
  KvHeadView view = call.kv->head(call.layer, group / call.groups_each);
  view.padded_dim = call.padded_dim;
  view.value_in_key = call.options->value_in_key;
  return view;
}

void AttentionRunner::prepare_workers(const Call& call) {
  workers_.resize(static_cast<std::size_t>(pool_.size()));
  std::int64_t tiles = kHeadsTogether;
  for (const Item& item : items_)
    tiles = std::max(tiles, item.tiles);
  const std::int64_t scratch = call.kernel->scratch(call.head_dim);
  const std::int64_t queries = tiles * call.kernel->query_tile * padded_depth(call.head_dim);
  const std::int64_t states = (kTilesTogether + tiles) * state_floats(call);
  const std::int64_t rotated = call.rotated ? call.kernel->query_tile * padded_depth(call.head_dim) : 0;
  for (Worker& worker : workers_) {
    worker.scratch = worker.memory.get<float>(static_cast<std::size_t>(scratch + queries + states + rotated));
    worker.queries = worker.scratch + scratch;
    worker.states = worker.queries + queries;
    worker.rotated = worker.states + states;
    worker.tiles.resize(static_cast<std::size_t>(tiles));
    if (call.masked) worker.masks.resize(worker.tiles.size());
  }
}

// Query vectors of an item are ordered by row, then by head of the group. Packs them into the worker's queries.
void AttentionRunner::make_tile(const Call& call, const Item& item, std::int64_t group, std::int64_t tile,
                                Worker& worker, std::int64_t index) const {
  QueryTile& out = worker.tiles[static_cast<std::size_t>(index)];
  const std::int64_t first = tile * call.kernel->query_tile;
  const std::int64_t head_dim = call.head_dim;
  out = {};
  out.count = std::min(call.kernel->query_tile, item.num_rows * call.group - first);
  out.scale = call.options->scale;
  float* queries = queries_at(call, worker, index);
  out.queries = queries;
  const float* rows[kMaxQueryTile];
  for (std::int64_t i = 0; i < out.count; ++i) {
    const std::int32_t row = rows_[static_cast<std::size_t>(item.first + (first + i) / call.group)];
    const std::int64_t head = group * call.group + (first + i) % call.group;
    rows[i] = call.q.data + row * call.q.stride + head * head_dim;
    const std::int64_t position = positions_[static_cast<std::size_t>(row)];
    out.visible[i] = item.shared_tokens > 0 ? item.shared_tokens
                                            : seen_by_row(*call.options, batch_, row, position, item.context).end;
    // Rows come from the caches of the cores that computed them: all are on their way before the first is waited for.
    for (std::int64_t d = 0; d < head_dim; d += 16)
      __builtin_prefetch(rows[i] + d);
  }
  if (call.masked) set_mask(call, item, group, tile, &worker.masks[static_cast<std::size_t>(index)], &out);
  if (!call.rotated) return call.kernel->pack_queries(rows, out.count, head_dim, out.scale, queries);
  for (std::int64_t i = 0; i < out.count; ++i) {
    float* rotated = worker.rotated + i * padded_depth(head_dim);
    rotate_head(rows[i], head_dim, rotated);
    std::fill(rotated + head_dim, rotated + padded_depth(head_dim), 0.0f);
    rows[i] = rotated;
  }
  call.kernel->pack_int4_queries(rows, out.count, head_dim, queries);
}

void AttentionRunner::set_mask(const Call& call, const Item& item, std::int64_t group, std::int64_t tile,
                               TileMask* mask, QueryTile* out) const {
  const AttentionOptions& options = *call.options;
  const std::int64_t first = tile * call.kernel->query_tile;
  for (std::int64_t i = 0; i < out->count; ++i) {
    const std::int64_t head = group * call.group + (first + i) % call.group;
    const std::int32_t row = rows_[static_cast<std::size_t>(item.first + (first + i) / call.group)];
    mask->position[i] = positions_[static_cast<std::size_t>(row)];
    mask->first[i] = seen_by(options, mask->position[i], item.context).begin;
    mask->slope[i] = options.alibi > 0.0f ? alibi_slope(options.alibi, head, options.num_heads) : 0.0f;
  }
  mask->softcap = options.softcap;
  out->mask = mask;
}

float* AttentionRunner::total_of(const Call& call, std::int64_t row, std::int64_t head) const {
  return totals_ + (row * call.options->num_heads + head) * (call.padded_dim + 2);
}

// Results of the last level are written to the operation's output, others kept for the next item of their rows.
void AttentionRunner::end_tile(const Call& call, const Item& item, std::int64_t group, std::int64_t tile,
                               const SoftmaxState& state) {
  const std::int64_t first = tile * call.kernel->query_tile;
  const std::int64_t count = std::min(call.kernel->query_tile, item.num_rows * call.group - first);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = rows_[static_cast<std::size_t>(item.first + (first + i) / call.group)];
    const std::int64_t head = group * call.group + (first + i) % call.group;
    const float* weighted = state.weighted + i * call.padded_dim;
    if (item.shared_tokens == 0) {
      float* out = call.out.data + row * call.out.stride + head * call.value_dim;
      kernels_.finish(weighted, state.sum[i], call.value_dim, out);
      if (call.rotated) rotate_head(out, call.value_dim, out);
      continue;
    }
    float* total = total_of(call, row, head);
    total[0] = state.maximum[i];
    total[1] = state.sum[i];
    std::copy_n(weighted, call.padded_dim, total + 2);
  }
}

// The views of a unit's groups, and their only tiles to worker.tiles.
void AttentionRunner::make_head_tiles(const Call& call, const Unit& unit, Worker& worker, KvHeadView* views) const {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  for (std::int64_t h = 0; h < unit.num_heads; ++h) {
    views[h] = view_of(call, unit.first_head + h);
    make_tile(call, item, unit.first_head + h, 0, worker, h);
  }
}

void AttentionRunner::run_heads(const Call& call, const Unit& unit, Worker& worker) {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  KvHeadView views[kHeadsTogether];
  make_head_tiles(call, unit, worker, views);
  SoftmaxState parts[kHeadsTogether];
  SoftmaxState totals[kHeadsTogether];
  for (std::int64_t h = 0; h < unit.num_heads; ++h) {
    parts[h] = state_at(call, worker.states, h);
    totals[h] = state_at(call, worker.states, kHeadsTogether + h);
    begin_tile(call, item, unit.first_head + h, 0, totals[h]);
  }
  for (std::int64_t p = 0; p < item.partitions; ++p) {
    call.kernel->run(views, item.block_table, worker.tiles.data(), unit.num_heads, 1, item.first_partition + p,
                     worker.scratch, parts);
    for (std::int64_t h = 0; h < unit.num_heads; ++h)
      kernels_.merge(totals[h], parts[h], item.num_rows * call.group, call.padded_dim);
  }
  for (std::int64_t h = 0; h < unit.num_heads; ++h)
    end_tile(call, item, unit.first_head + h, 0, totals[h]);
}

// The tiles of one head to worker.tiles.
void AttentionRunner::make_tiles(const Call& call, const Unit& unit, Worker& worker) const {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  for (std::int64_t t = 0; t < item.tiles; ++t)
    make_tile(call, item, unit.first_head, t, worker, t);
}

// Runs all tiles of one head, partition by partition, so that its K and V stay in the cache for the tiles.
void AttentionRunner::run_tiles(const Call& call, const Unit& unit, Worker& worker) {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  const AttendKernel& kernel = *call.kernel;
  const KvHeadView view = view_of(call, unit.first_head);
  const auto total = [&](std::int64_t t) { return state_at(call, worker.states, kTilesTogether + t); };
  SoftmaxState parts[kTilesTogether];
  for (std::int64_t i = 0; i < kernel.tiles_together; ++i)
    parts[i] = state_at(call, worker.states, i);
  make_tiles(call, unit, worker);
  for (std::int64_t t = 0; t < item.tiles; ++t)
    begin_tile(call, item, unit.first_head, t, total(t));
  for (std::int64_t p = item.first_partition; p < item.first_partition + item.partitions; ++p) {
    const TileRange seeing = tiles_that_see(worker.tiles, item.tiles, p);
    for (std::int64_t t = seeing.begin; t < seeing.end; t += kernel.tiles_together) {
      const QueryTile* tiles = &worker.tiles[static_cast<std::size_t>(t)];
      const std::int64_t count = std::min(kernel.tiles_together, seeing.end - t);
      kernel.run(&view, item.block_table, tiles, 1, count, p, worker.scratch, parts);
      for (std::int64_t i = 0; i < count; ++i)
        kernels_.merge(total(t + i), parts[i], tiles[i].count, call.padded_dim);
    }
  }
  for (std::int64_t t = 0; t < item.tiles; ++t)
    end_tile(call, item, unit.first_head, t, total(t));
}

void AttentionRunner::run_whole(const Call& call) {
  for (const Level& level : levels_) {
    pool_.run(static_cast<std::int64_t>(level.end_unit - level.first_unit), [&](int worker, std::int64_t index) {
      const Unit& unit = units_[level.first_unit + static_cast<std::size_t>(index)];
      if (items_[static_cast<std::size_t>(unit.item)].tiles == 1) {
        run_heads(call, unit, workers_[static_cast<std::size_t>(worker)]);
      } else {
        run_tiles(call, unit, workers_[static_cast<std::size_t>(worker)]);
      }
    });
  }
}

// Attends one partition of a unit; state_of(group, tile) is where each state goes.
template <class StateOf>
void AttentionRunner::run_partition(const Call& call, const Unit& unit, Worker& worker, const StateOf& state_of) {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  const AttendKernel& kernel = *call.kernel;
  const std::int64_t partition = item.first_partition + unit.partition;
  KvHeadView views[kHeadsTogether];
  SoftmaxState states[kTilesTogether];
  if (item.tiles == 1) {
    make_head_tiles(call, unit, worker, views);
    for (std::int64_t h = 0; h < unit.num_heads; ++h)
      states[h] = state_of(unit.first_head + h, std::int64_t{0});
    return kernel.run(views, item.block_table, worker.tiles.data(), unit.num_heads, 1, partition, worker.scratch,
                      states);
  }
  views[0] = view_of(call, unit.first_head);
  make_tiles(call, unit, worker);
  const TileRange seeing = tiles_that_see(worker.tiles, item.tiles, partition);
  for (std::int64_t t = 0; t < item.tiles; ++t) {
    if (t < seeing.begin || t >= seeing.end) reset(call, state_of(unit.first_head, t));
  }
  for (std::int64_t t = seeing.begin; t < seeing.end; t += kernel.tiles_together) {
    const std::int64_t count = std::min(kernel.tiles_together, seeing.end - t);
    for (std::int64_t i = 0; i < count; ++i)
      states[i] = state_of(unit.first_head, t + i);
    kernel.run(views, item.block_table, &worker.tiles[static_cast<std::size_t>(t)], 1, count, partition, worker.scratch,
               states);
  }
}

// Computes all partitions of all levels at once, then merges their results in order.
void AttentionRunner::run_split(const Call& call) {
  float* states = states_.get<float>(static_cast<std::size_t>(num_states_ * state_floats(call)));
  pool_.run(static_cast<std::int64_t>(units_.size()), [&](int worker, std::int64_t index) {
    const Unit& unit = units_[static_cast<std::size_t>(index)];
    const Item& item = items_[static_cast<std::size_t>(unit.item)];
    run_partition(call, unit, workers_[static_cast<std::size_t>(worker)], [&](std::int64_t group, std::int64_t tile) {
      return state_at(call, states, item.first_state + (group * item.partitions + unit.partition) * item.tiles + tile);
    });
  });
  for (const Level& level : levels_) {
    const auto num_items = static_cast<std::int64_t>(level.end_item - level.first_item);
    pool_.run(num_items * call.num_groups, [&](int worker, std::int64_t unit) {
      const Item& item = items_[level.first_item + static_cast<std::size_t>(unit / call.num_groups)];
      const SoftmaxState total = state_at(call, workers_[static_cast<std::size_t>(worker)].states, 0);
      merge_parts(call, item, unit % call.num_groups, states, total);
    });
  }
}

void AttentionRunner::merge_parts(const Call& call, const Item& item, std::int64_t group, float* states,
                                  const SoftmaxState& total) {
  for (std::int64_t t = 0; t < item.tiles; ++t) {
    begin_tile(call, item, group, t, total);
    const std::int64_t count =
        std::min(call.kernel->query_tile, item.num_rows * call.group - t * call.kernel->query_tile);
    for (std::int64_t p = 0; p < item.partitions; ++p) {
      const std::int64_t index = item.first_state + (group * item.partitions + p) * item.tiles + t;
      kernels_.merge(total, state_at(call, states, index), count, call.padded_dim);
    }
    end_tile(call, item, group, t, total);
  }
}

}  // namespace quire
