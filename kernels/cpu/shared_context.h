// SharedContext: finds the sequences of a step that begin with the same blocks of K and V. One thread at a time;
// reused, so that a steady step allocates nothing. Invariants: every row of a group's members sees all tokens of the
// group's partitions, which lie in the same blocks for all of them. The groups of a sequence follow each other without
// a gap from its first partition on, by level.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace quire {

class SharedContext {
 public:
  // Partitions [first_partition, end_partition) of the context of some sequences.
  struct Group {
    std::int64_t level = 0;
    std::int64_t first_member = 0;
    std::int64_t num_members = 0;
    std::int64_t first_partition = 0;
    std::int64_t end_partition = 0;
  };

  void clear();
  void find(const AttentionBatch& batch, std::int64_t block_size);

  std::span<const Group> groups() const { return groups_; }  // ordered by level
  std::span<const std::int32_t> members(const Group& group) const {
    return std::span(order_).subspan(static_cast<std::size_t>(group.first_member),
                                     static_cast<std::size_t>(group.num_members));
  }
  // Partitions of a sequence that groups cover.
  std::int64_t num_partitions(std::size_t sequence) const { return groups_.empty() ? 0 : covered_[sequence]; }

 private:
  struct Range {
    std::int64_t begin;
    std::int64_t end;
  };

  std::span<const std::int32_t> blocks_of(std::int32_t sequence, std::int64_t partition) const;
  // Sequences order_[members] have equal blocks in all partitions before `partition`; those before `covered` are in
  // groups of lower levels.
  void find_from(Range members, std::int64_t covered, std::int64_t partition, std::int64_t level);
  // The first partition behind `partition` that the members do not have in common.
  std::int64_t common_end(Range members, std::int64_t partition) const;

  const AttentionBatch* batch_ = nullptr;
  std::int64_t block_size_ = 0;
  std::vector<std::int32_t> order_;    // sequences; members of a group are neighbours
  std::vector<std::int64_t> whole_;    // [sequences] partitions that all of its rows see whole
  std::vector<std::int64_t> covered_;  // [sequences]
  std::vector<Group> groups_;
};

}  // namespace quire
