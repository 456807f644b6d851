#include "kernels/cpu/cpu_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
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

// Tokens [begin, end) of a context.
struct TokenRange {
  std::int64_t begin;
  std::int64_t end;
};

TokenRange seen_by(const AttentionOptions& options, std::int64_t position, std::int64_t context) {
  TokenRange seen{0, options.causal ? position + 1 : context};
  if (options.window > 0) {
    const std::int64_t reach = options.causal ? options.window - 1 : options.window / 2;
    seen.begin = std::max<std::int64_t>(0, position - reach);
    if (!options.causal) seen.end = std::min(context, position + reach + 1);
  }
  if (options.chunk > 0) seen.begin = std::max(seen.begin, position / options.chunk * options.chunk);
  return seen;
}

// Slopes of heads fall by equal factors (arXiv 2108.12409).
float alibi_slope(float largest_exponent, std::int64_t head, std::int64_t num_heads) {
  const auto power = std::bit_floor(static_cast<std::uint64_t>(num_heads));
  const auto whole = static_cast<double>(power);
  const double base = std::pow(2.0, -static_cast<double>(largest_exponent) / whole);
  const double half = std::pow(2.0, -static_cast<double>(largest_exponent) / 2.0 / whole);
  const auto h = static_cast<double>(head);
  return static_cast<float>(h < whole ? std::pow(base, h + 1.0) : std::pow(half, 2.0 * (h - whole) + 1.0));
}

// Rows of `group` query vectors each for about `queries` of them, as whole tiles where there are enough.
std::int64_t rows_of_items(std::int64_t queries, std::int64_t group, std::int64_t query_tile) {
  const std::int64_t rows = std::max<std::int64_t>(1, queries / group);
  const std::int64_t whole = query_tile / std::gcd(query_tile, group);
  return rows > whole ? rows / whole * whole : rows;
}

// Tiles [begin, end) of an item.
struct TileRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Those that see some of a partition: neither the first nor the last token that tiles see ever decreases.
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
  const AttendKernel& kernel = masked ? kernels_.attend_masked : kernels_.attend;
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
            .padded_dim = ceil_div(value_dim, 16) * 16,
            .masked = masked};
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
  const AttendKernel& kernel = *call.kernel;
  const std::int64_t least = std::max(kMinItemTiles, kernel.tiles_together / 2);
  const std::int64_t most = std::max(kMaxItemTiles, kernel.tiles_together);
  const std::int64_t item_queries = std::clamp(q.rows * options.num_heads / (kUnitsPerThread * pool_.size()),
                                               least * kernel.query_tile, most * kernel.query_tile);
  plan(call, batch, rows_of_items(item_queries, call.group, kernel.query_tile));
  if (items_.empty()) return;
  const auto whole_units = static_cast<std::int64_t>(items_.size()) * call.num_groups;
  const bool long_context = std::ranges::any_of(items_, [](const Item& item) { return item.partitions > 1; });
  const bool split = pool_.size() > 1 && long_context && whole_units < 4 * pool_.size() &&
                     num_states_ * kernel.query_tile <= kMaxSplitQueries;
  plan_units(call.num_groups, split);
  prepare_workers(call);
  if (split) {
    run_split(call);
  } else {
    run_whole(call);
  }
}

void AttentionRunner::plan(const Call& call, const AttentionBatch& batch, std::int64_t max_rows) {
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
      item.first_position = context - (end - row);
      item.context = context;
      item.block_table = batch.block_tables.data() + batch.block_table_start[s];
      const TokenRange seen = {seen_by(*call.options, item.first_position, context).begin,
                               seen_by(*call.options, item.first_position + item.num_rows - 1, context).end};
      item.first_partition = seen.begin / kPartition;
      item.partitions = ceil_div(seen.end, kPartition) - item.first_partition;
      item.tiles = ceil_div(item.num_rows * call.group, call.kernel->query_tile);
      item.first_state = num_states_;
      num_states_ += call.num_groups * item.partitions * item.tiles;
      items_.push_back(item);
    }
  }
}

void AttentionRunner::plan_units(std::int64_t num_groups, bool split) {
  units_.clear();
  std::int64_t num_parts = 0;
  for (const Item& item : items_)
    num_parts += split ? item.partitions : 1;
  // As many heads together as leave every thread some units.
  const std::int64_t together =
      std::clamp<std::int64_t>(num_groups * num_parts / (2 * pool_.size()), 1, kHeadsTogether);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const std::int64_t step = items_[i].tiles == 1 ? together : 1;
    for (std::int64_t partition = 0; partition < (split ? items_[i].partitions : 1); ++partition) {
      for (std::int64_t head = 0; head < num_groups; head += step)
        units_.push_back({static_cast<std::int64_t>(i), head, std::min(step, num_groups - head), partition});
    }
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
  if (call.options->sinks == nullptr) return;
  const std::int64_t first = tile * call.kernel->query_tile;
  const std::int64_t count = std::min(call.kernel->query_tile, item.num_rows * call.group - first);
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
  for (Worker& worker : workers_) {
    worker.scratch = worker.memory.get<float>(static_cast<std::size_t>(scratch + queries + states));
    worker.queries = worker.scratch + scratch;
    worker.states = worker.queries + queries;
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
    const std::int64_t row = (first + i) / call.group;
    const std::int64_t head = group * call.group + (first + i) % call.group;
    rows[i] = call.q.data + (item.first_row + row) * call.q.stride + head * head_dim;
    out.visible[i] = seen_by(*call.options, item.first_position + row, item.context).end;
    // Rows come from the caches of the cores that computed them: all are on their way before the first is waited for.
    for (std::int64_t d = 0; d < head_dim; d += 16)
      __builtin_prefetch(rows[i] + d);
  }
  if (call.masked) set_mask(call, item, group, tile, &worker.masks[static_cast<std::size_t>(index)], &out);
  call.kernel->pack_queries(rows, out.count, head_dim, out.scale, queries);
}

void AttentionRunner::set_mask(const Call& call, const Item& item, std::int64_t group, std::int64_t tile,
                               TileMask* mask, QueryTile* out) const {
  const AttentionOptions& options = *call.options;
  const std::int64_t first = tile * call.kernel->query_tile;
  for (std::int64_t i = 0; i < out->count; ++i) {
    const std::int64_t head = group * call.group + (first + i) % call.group;
    mask->position[i] = item.first_position + (first + i) / call.group;
    mask->first[i] = seen_by(options, mask->position[i], item.context).begin;
    mask->slope[i] = options.alibi > 0.0f ? alibi_slope(options.alibi, head, options.num_heads) : 0.0f;
  }
  mask->softcap = options.softcap;
  out->mask = mask;
}

void AttentionRunner::write_tile(const Call& call, const Item& item, std::int64_t group, std::int64_t tile,
                                 const SoftmaxState& state) {
  const std::int64_t first = tile * call.kernel->query_tile;
  const std::int64_t count = std::min(call.kernel->query_tile, item.num_rows * call.group - first);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = item.first_row + (first + i) / call.group;
    const std::int64_t head = group * call.group + (first + i) % call.group;
    float* out = call.out.data + row * call.out.stride + head * call.value_dim;
    kernels_.finish(state.weighted + i * call.padded_dim, state.sum[i], call.value_dim, out);
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
    write_tile(call, item, unit.first_head + h, 0, totals[h]);
}

// The tiles of one head to worker.tiles.
void AttentionRunner::make_tiles(const Call& call, const Unit& unit, Worker& worker) const {
  const Item& item = items_[static_cast<std::size_t>(unit.item)];
  for (std::int64_t t = 0; t < item.tiles; ++t)
    make_tile(call, item, unit.first_head, t, worker, t);
}

// All tiles of one head, partition by partition, so that its K and V stay in the cache for the tiles.
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

// One partition of a unit, each state to where state_of(group, tile) says.
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

void AttentionRunner::run_split(const Call& call) {
  float* states = states_.get<float>(static_cast<std::size_t>(num_states_ * state_floats(call)));
  const auto state_of = [&](const Item& item, std::int64_t group, std::int64_t p, std::int64_t tile) {
    return state_at(call, states, item.first_state + (group * item.partitions + p) * item.tiles + tile);
  };
  pool_.run(static_cast<std::int64_t>(units_.size()), [&](int worker, std::int64_t index) {
    const Unit& unit = units_[static_cast<std::size_t>(index)];
    const Item& item = items_[static_cast<std::size_t>(unit.item)];
    run_partition(call, unit, workers_[static_cast<std::size_t>(worker)],
                  [&](std::int64_t group, std::int64_t tile) { return state_of(item, group, unit.partition, tile); });
  });
  pool_.run(static_cast<std::int64_t>(items_.size()) * call.num_groups, [&](int worker, std::int64_t unit) {
    const Item& item = items_[static_cast<std::size_t>(unit / call.num_groups)];
    const std::int64_t group = unit % call.num_groups;
    const SoftmaxState total = state_at(call, workers_[static_cast<std::size_t>(worker)].states, 0);
    const std::int64_t queries = item.num_rows * call.group;
    for (std::int64_t t = 0; t < item.tiles; ++t) {
      begin_tile(call, item, group, t, total);
      const std::int64_t count = std::min(call.kernel->query_tile, queries - t * call.kernel->query_tile);
      for (std::int64_t p = 0; p < item.partitions; ++p)
        kernels_.merge(total, state_of(item, group, p, t), count, call.padded_dim);
      write_tile(call, item, group, t, total);
    }
  });
}

}  // namespace quire
