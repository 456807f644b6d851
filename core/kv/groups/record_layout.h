// RecordLayout: the payload of a node's record: its block, then the content of the first groups beside the blocks.
// Immutable; any thread. Invariant: a record holds a group's content only with that of all groups before it, so that
// its size identifies its content.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/kv/groups/kv_group.h"

namespace quire {

class RecordLayout {
 public:
  RecordLayout(KvGroups groups, const KvBytes& bytes) : groups_(groups) {
    sizes_.front() = bytes.block;
    for (std::size_t i = 0; i < groups.size(); ++i)
      sizes_.at(i + 1) = sizes_.at(i) + groups[i]->bytes(bytes);
  }

  KvGroups groups() const { return groups_; }
  std::int64_t block_bytes() const { return sizes_.front(); }
  std::int64_t payload_bytes(std::size_t num_groups) const { return sizes_.at(num_groups); }
  std::int64_t most_bytes() const { return sizes_.at(groups_.size()); }
  std::vector<std::int64_t> sizes() const {
    return {sizes_.begin(), sizes_.begin() + static_cast<std::ptrdiff_t>(groups_.size()) + 1};
  }
  // Number of groups whose content a payload of this size holds; nothing if no payload has this size.
  std::optional<std::size_t> groups_in(std::int64_t payload_bytes) const {
    for (std::size_t i = groups_.size() + 1; i-- > 0;) {
      if (sizes_.at(i) == payload_bytes) return i;
    }
    return {};
  }
  // Number of groups whose content of the block number `index` a sequence needs behind `num_blocks` blocks.
  std::size_t needed(std::int64_t index, std::int64_t num_blocks) const {
    std::size_t num_groups = 0;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (index >= groups_[i]->first_needed(num_blocks)) num_groups = i + 1;
    }
    return num_groups;
  }
  // The same number, without trailing groups whose content the pool has.
  std::size_t lacking(PrefixNode node, std::int64_t index, std::int64_t num_blocks) const {
    std::size_t num_groups = needed(index, num_blocks);
    while (num_groups > 0 && groups_[num_groups - 1]->has(node))
      --num_groups;
    return num_groups;
  }
  // Number of groups whose content is worth a record; a group without content ends the count.
  std::size_t worth(PrefixNode node) const {
    std::size_t num_groups = 0;
    for (std::size_t i = 0; i < groups_.size() && groups_[i]->has(node); ++i) {
      if (groups_[i]->is_worth_record(node)) num_groups = i + 1;
    }
    return num_groups;
  }
  // Whether something that is worth a record comes with the next step's copies.
  bool awaits(PrefixNode node) const {
    for (const KvGroup* group : groups_) {
      if (group->awaits(node)) return true;
    }
    return false;
  }
  // The pool's places that hold the first groups' content of a node.
  KvExtras located(PrefixNode node, std::size_t num_groups) const {
    KvExtras extras;
    for (const KvGroup* group : groups_.first(num_groups))
      group->locate(node, extras);
    return extras;
  }
  // Whether the groups have room beyond the share that is left to running sequences.
  bool has_spare(std::size_t num_groups) const {
    for (const KvGroup* group : groups_.first(num_groups)) {
      if (!group->can_hold(true)) return false;
    }
    return true;
  }

 private:
  KvGroups groups_;
  std::array<std::int64_t, kMostKvGroups + 1> sizes_{};
};

}  // namespace quire
