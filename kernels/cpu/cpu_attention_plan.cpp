// AttentionRunner's plan: the items and units of work of an operation.
#include <algorithm>
#include <numeric>

#include "kernels/cpu/cpu_attention.h"

namespace quire {
namespace {

// Tiles of an item for each K/V head: enough to reuse a partition's K and V, few enough to share the work out. A kernel
// that takes several at once prepares K and V for them once.
constexpr std::int64_t kMinItemTiles = 2;
constexpr std::int64_t kMaxItemTiles = 8;
// Units of each thread, if there is enough work; the last ones determine how long threads wait for each other.
constexpr std::int64_t kUnitsPerThread = 12;
// Fewer units than this for each thread are divided by partition, if there are several.
constexpr std::int64_t kLeastUnitsPerThread = 4;
// Split sharing pays only while its states are small beside K and V.
constexpr std::int64_t kMaxSplitQueries = 1 << 19;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t least_tiles(const AttendKernel& kernel) {
  return std::max(kMinItemTiles, kernel.tiles_together / 2);
}
std::int64_t most_tiles(const AttendKernel& kernel) {
  return std::max(kMaxItemTiles, kernel.tiles_together);
}

// Number of rows, each with `group` query vectors, for about `queries` vectors: whole tiles if there are enough.
std::int64_t rows_of_items(std::int64_t queries, std::int64_t group, std::int64_t query_tile) {
  const std::int64_t rows = std::max<std::int64_t>(1, queries / group);
  const std::int64_t whole = query_tile / std::gcd(query_tile, group);
  return rows > whole ? rows / whole * whole : rows;
}

}  // namespace

void AttentionRunner::plan(const Call& call, const AttentionBatch& batch) {
  const AttentionOptions& options = *call.options;
  items_.clear();
  levels_.clear();
  num_states_ = 0;
  plan_rows(batch);
  shared_.clear();
  const bool sees_beginning = options.causal && options.window == 0 && options.chunk == 0;
  if (sees_beginning && batch.context_len.size() > 1) shared_.find(batch, call.kv->layout().block_size);
  std::int64_t level = 0;
  for (const SharedContext::Group& group : shared_.groups()) {
    if (group.level != level) end_level();
    level = group.level;
    plan_shared(call, batch, group);
  }
  if (!items_.empty()) end_level();
  const std::int64_t queries = call.q.rows * options.num_heads / (kUnitsPerThread * pool_.size());
  const AttendKernel& kernel = *call.kernel;
  const std::int64_t bounded =
      std::clamp(queries, least_tiles(kernel) * kernel.query_tile, most_tiles(kernel) * kernel.query_tile);
  plan_rest(call, batch, rows_of_items(bounded, call.group, kernel.query_tile));
  if (!items_.empty()) end_level();
}

void AttentionRunner::plan_rows(const AttentionBatch& batch) {
  rows_.clear();
  positions_.clear();
  for (std::size_t s = 0; s < batch.context_len.size(); ++s) {
    const std::int32_t end = batch.query_start[s + 1];
    for (std::int32_t row = batch.query_start[s]; row < end; ++row) {
      rows_.push_back(row);
      positions_.push_back(batch.context_len[s] - (end - row));
    }
  }
}

// Items that read the shared blocks seldom, yet are enough for all threads.
void AttentionRunner::plan_shared(const Call& call, const AttentionBatch& batch, const SharedContext::Group& group) {
  const AttendKernel& kernel = *call.kernel;
  const std::int64_t first = std::ssize(rows_);
  for (const std::int32_t s : shared_.members(group)) {
    const auto index = static_cast<std::size_t>(s);
    for (std::int32_t row = batch.query_start[index]; row < batch.query_start[index + 1]; ++row)
      rows_.push_back(row);
  }
  const std::int64_t num_rows = std::ssize(rows_) - first;
  const std::int64_t tiles = divide_up(num_rows * call.group, kernel.query_tile);
  const std::int64_t wanted = divide_up(kLeastUnitsPerThread * pool_.size(), call.num_groups);
  const std::int64_t fewest = divide_up(tiles, most_tiles(kernel));
  const std::int64_t num_items = std::clamp(wanted, fewest, std::max(fewest, tiles / least_tiles(kernel)));
  const std::int64_t whole = kernel.query_tile / std::gcd(kernel.query_tile, call.group);
  const std::int64_t even = divide_up(num_rows, num_items);
  const std::int64_t rows = even > whole / 2 ? divide_up(even, whole) * whole : even;
  const auto table =
      static_cast<std::size_t>(batch.block_table_start[static_cast<std::size_t>(shared_.members(group).front())]);
  for (std::int64_t at = 0; at < num_rows; at += rows) {
    Item item;
    item.first = first + at;
    item.num_rows = std::min(rows, num_rows - at);
    item.context = item.shared_tokens = group.end_partition * kPartition;
    item.is_first = group.first_partition == 0;
    item.block_table = batch.block_tables.data() + table;
    item.first_partition = group.first_partition;
    item.partitions = group.end_partition - group.first_partition;
    add_item(call, item);
  }
}

// Adds items for the context that a sequence's rows do not share.
void AttentionRunner::plan_rest(const Call& call, const AttentionBatch& batch, std::int64_t max_rows) {
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int64_t end = batch.query_start[s + 1];
    const std::int64_t context = batch.context_len[s];
    for (std::int64_t row = batch.query_start[s]; row < end; row += max_rows) {
      Item item;
      item.first = row;
      item.num_rows = std::min(max_rows, end - row);
      item.context = context;
      item.is_first = shared_.num_partitions(s) == 0;
      item.block_table = batch.block_tables.data() + batch.block_table_start[s];
      const std::int64_t first_position = context - (end - row);
      const std::int64_t last = item.num_rows - 1;
      const TokenRange seen = {seen_by_row(*call.options, batch, row, first_position, context).begin,
                               seen_by_row(*call.options, batch, row + last, first_position + last, context).end};
      item.first_partition = item.is_first ? seen.begin / kPartition : shared_.num_partitions(s);
      item.partitions = divide_up(seen.end, kPartition) - item.first_partition;
      add_item(call, item);
    }
  }
}

void AttentionRunner::add_item(const Call& call, Item item) {
  item.tiles = divide_up(item.num_rows * call.group, call.kernel->query_tile);
  item.first_state = num_states_;
  num_states_ += call.num_groups * item.partitions * item.tiles;
  items_.push_back(item);
}

void AttentionRunner::end_level() {
  Level level;
  level.first_item = levels_.empty() ? 0 : levels_.back().end_item;
  level.end_item = items_.size();
  for (std::size_t i = level.first_item; i < level.end_item; ++i)
    level.most_partitions = std::max(level.most_partitions, items_[i].partitions);
  levels_.push_back(level);
}

// True if a level has too few units for the threads.
bool AttentionRunner::pays_to_split(const Call& call) const {
  if (pool_.size() == 1 || num_states_ * call.kernel->query_tile > kMaxSplitQueries) return false;
  return std::ranges::any_of(levels_, [&](const Level& level) {
    const auto units = static_cast<std::int64_t>(level.end_item - level.first_item) * call.num_groups;
    return level.most_partitions > 1 && units < kLeastUnitsPerThread * pool_.size();
  });
}

void AttentionRunner::plan_units(std::int64_t num_groups, bool split) {
  units_.clear();
  for (Level& level : levels_) {
    std::int64_t num_parts = 0;
    for (std::size_t i = level.first_item; i < level.end_item; ++i)
      num_parts += split ? items_[i].partitions : 1;
    // The most heads together that leave every thread some units.
    const std::int64_t together =
        std::clamp<std::int64_t>(num_groups * num_parts / (2 * pool_.size()), 1, kHeadsTogether);
    level.first_unit = units_.size();
    for (std::size_t i = level.first_item; i < level.end_item; ++i) {
      const std::int64_t step = items_[i].tiles == 1 ? together : 1;
      for (std::int64_t partition = 0; partition < (split ? items_[i].partitions : 1); ++partition) {
        for (std::int64_t head = 0; head < num_groups; head += step)
          units_.push_back({static_cast<std::int64_t>(i), head, std::min(step, num_groups - head), partition});
      }
    }
    level.end_unit = units_.size();
  }
}

}  // namespace quire
