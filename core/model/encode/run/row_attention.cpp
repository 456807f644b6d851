#include "core/model/encode/run/row_attention.h"

#include <algorithm>
#include <numeric>

namespace quire {

namespace {

// Rows that see all of their sequence's context.
AttentionBatch seeing_all(std::span<const std::int32_t> query_start, std::span<const std::int32_t> context_len,
                          std::span<const std::int32_t> table_start, std::span<const std::int32_t> tables) {
  return {.query_start = query_start,
          .context_len = context_len,
          .block_table_start = table_start,
          .block_tables = tables,
          .slots = {},
          .causal = false};
}

}  // namespace

std::unique_ptr<KvStorage> allocate_rows(Backend& backend, std::int64_t num_blocks, std::int64_t block_size,
                                         std::int64_t num_heads, std::int64_t head_dim) {
  return backend.allocate_kv({.num_layers = 1,
                              .num_blocks = num_blocks,
                              .block_size = block_size,
                              .num_kv_heads = num_heads,
                              .head_dim = head_dim,
                              .dtype = backend.has_own_memory() ? KvDType::kF16 : KvDType::kF32});
}

RowAttention::RowAttention(std::vector<std::int64_t> bounds, std::int64_t block_size)
    : block_size_(block_size), bounds_(std::move(bounds)) {
  std::int64_t block = 0;
  for (std::size_t i = 0; i + 1 < bounds_.size(); ++i) {
    first_blocks_.push_back(static_cast<std::int32_t>(block));
    const std::int64_t count = bounds_[i + 1] - bounds_[i];
    for (std::int64_t row = 0; row < count; ++row)
      slots_.push_back(static_cast<std::int32_t>(block * block_size_ + row));
    block += (count + block_size_ - 1) / block_size_;
  }
  blocks_.resize(static_cast<std::size_t>(block));
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

std::int64_t RowAttention::longest() const {
  std::int64_t most = 0;
  for (std::size_t i = 1; i < bounds_.size(); ++i)
    most = std::max(most, bounds_[i] - bounds_[i - 1]);
  return most;
}

void RowAttention::store(Backend& backend, KvStorage& storage, std::int64_t first_row, MatrixView k,
                         MatrixView v) const {
  const AttentionBatch batch{
      .query_start = {},
      .context_len = {},
      .block_table_start = {},
      .block_tables = {},
      .slots = std::span(slots_).subspan(static_cast<std::size_t>(first_row), static_cast<std::size_t>(k.rows))};
  backend.store_kv(storage, 0, batch, k, v);
}

void RowAttention::run(Backend& backend, const KvStorage& storage, std::int64_t first_row, std::int64_t num_heads,
                       float scale, MatrixView q, MatrixView out) const {
  std::vector<std::int32_t> query_start = {0};
  std::vector<std::int32_t> context_len;
  std::vector<std::int32_t> table_start = {0};
  std::vector<std::int32_t> tables;
  const std::int64_t end = first_row + q.rows;
  const auto first = std::ranges::upper_bound(bounds_, first_row) - bounds_.begin() - 1;
  for (auto i = static_cast<std::size_t>(first); i + 1 < bounds_.size() && bounds_[i] < end; ++i) {
    query_start.push_back(static_cast<std::int32_t>(std::min(bounds_[i + 1], end) - first_row));
    const std::int64_t context = bounds_[i + 1] - bounds_[i];
    context_len.push_back(static_cast<std::int32_t>(context));
    const auto block = blocks_.begin() + first_blocks_[i];
    tables.insert(tables.end(), block, block + (context + block_size_ - 1) / block_size_);
    table_start.push_back(static_cast<std::int32_t>(tables.size()));
  }
  backend.attention(storage, 0, seeing_all(query_start, context_len, table_start, tables), q, num_heads, scale, out);
}

void RowAttention::run_across(Backend& backend, const KvStorage& storage, std::int64_t num_heads, float scale,
                              MatrixView q, MatrixView out) const {
  const std::int32_t query_start[] = {0, static_cast<std::int32_t>(q.rows)};
  const std::int32_t context_len[] = {static_cast<std::int32_t>(bounds_.back())};
  const std::int32_t table_start[] = {0, static_cast<std::int32_t>(blocks_.size())};
  backend.attention(storage, 0, seeing_all(query_start, context_len, table_start, blocks_), q, num_heads, scale, out);
}

}  // namespace quire
