#include "kernels/cpu/shared_context.h"

#include <algorithm>
#include <tuple>

#include "kernels/cpu/kernel_table.h"

namespace quire {
namespace {

// Each level of groups waits for the one before.
constexpr std::int64_t kMostLevels = 3;
// Partitions that a group reads less often than its members would; fewer are not worth a level.
constexpr std::int64_t kLeastSaved = 2;

}  // namespace

void SharedContext::clear() {
  order_.clear();
  groups_.clear();
}

void SharedContext::find(const AttentionBatch& batch, std::int64_t block_size) {
  clear();
  batch_ = &batch;
  block_size_ = block_size;
  const std::size_t num_sequences = batch.context_len.size();
  whole_.resize(num_sequences);
  covered_.assign(num_sequences, 0);
  for (std::size_t s = 0; s < num_sequences; ++s) {
    const std::int64_t rows = batch.query_start[s + 1] - batch.query_start[s];
    whole_[s] = rows > 0 ? (batch.context_len[s] - rows) / kPartition : 0;
    order_.push_back(static_cast<std::int32_t>(s));
  }
  find_from({0, std::ssize(order_)}, 0, 0, 0);
  std::ranges::sort(groups_, {}, [](const Group& group) { return std::tuple(group.level, group.first_member); });
}

std::span<const std::int32_t> SharedContext::blocks_of(std::int32_t sequence, std::int64_t partition) const {
  const std::int64_t begin = partition * kPartition / block_size_;
  const std::int64_t end = ((partition + 1) * kPartition + block_size_ - 1) / block_size_;
  const std::int64_t table = batch_->block_table_start[static_cast<std::size_t>(sequence)];
  return batch_->block_tables.subspan(static_cast<std::size_t>(table + begin), static_cast<std::size_t>(end - begin));
}

std::int64_t SharedContext::common_end(Range members, std::int64_t partition) const {
  const std::int32_t first = order_[static_cast<std::size_t>(members.begin)];
  const auto same = [&](std::int32_t sequence) {
    return whole_[static_cast<std::size_t>(sequence)] > partition &&
           std::ranges::equal(blocks_of(sequence, partition), blocks_of(first, partition));
  };
  do {
    ++partition;
  } while (std::all_of(order_.begin() + members.begin, order_.begin() + members.end, same));
  return partition;
}

void SharedContext::find_from(Range members, std::int64_t covered, std::int64_t partition, std::int64_t level) {
  const auto begin = order_.begin() + members.begin;
  const auto end = std::partition(begin, order_.begin() + members.end, [&](std::int32_t sequence) {
    return whole_[static_cast<std::size_t>(sequence)] > partition;
  });
  std::sort(begin, end, [&](std::int32_t a, std::int32_t b) {
    return std::ranges::lexicographical_compare(blocks_of(a, partition), blocks_of(b, partition));
  });
  for (auto first = begin; first != end;) {
    const auto last = std::find_if(first, end, [&](std::int32_t sequence) {
      return !std::ranges::equal(blocks_of(sequence, partition), blocks_of(*first, partition));
    });
    const Range same{first - order_.begin(), last - order_.begin()};
    first = last;
    if (same.end - same.begin < 2) continue;
    const std::int64_t common = common_end(same, partition);
    const bool is_worth = (same.end - same.begin - 1) * (common - covered) >= kLeastSaved;
    if (is_worth) {
      groups_.push_back({level, same.begin, same.end - same.begin, covered, common});
      for (std::int64_t i = same.begin; i < same.end; ++i)
        covered_[static_cast<std::size_t>(order_[static_cast<std::size_t>(i)])] = common;
    }
    const std::int64_t next = is_worth ? level + 1 : level;
    if (next < kMostLevels) find_from(same, is_worth ? common : covered, common, next);
  }
}

}  // namespace quire
