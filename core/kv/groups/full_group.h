// FullGroup: the blocks of all tokens, which a table lists. Engine thread only. A sequence continues behind blocks that
// are in the pool. Invariants: a request for blocks gets all of them or none; a block's other groups forget it before
// it leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv/groups/kv_group.h"

namespace quire {

class FullGroup final : public KvGroup {
 public:
  // `beside`: the other groups; it may be filled later.
  FullGroup(KvShared& shared, const std::vector<KvGroup*>& beside) : KvGroup(shared), beside_(beside) {}

  // Makes `num_blocks` blocks free; false, and nothing changed, if fewer are available.
  bool free_blocks(std::int64_t num_blocks);
  // Drops a reference; the last one frees the block, or keeps it in the cache.
  void drop_reference(BlockId block, bool keep);
  // New blocks that admitting the match takes, and its cached ones.
  std::int64_t blocks_needed(const BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens) const;

  bool shows(PrefixNode node) const override { return has(node); }
  std::int64_t first_needed(std::int64_t /*num_blocks*/) const override { return 0; }
  bool shows_inside(const NodePlace& place, bool is_whole) const override { return is_whole && has(place.node); }
  void admit(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& copies,
             std::int64_t num_tokens) override;
  bool make_room(const BlockTable& table, std::int64_t num_tokens, bool copies_tail) override;
  void grow(BlockTable& table, std::int64_t num_tokens) override;
  void copy_tail(BlockTable& table, BlockId from, BlockId to, std::vector<BlockCopy>& copies) override;
  bool adopt(BlockTable& table, BlockId found) override;
  bool can_fork(const BlockTable& /*table*/, std::int64_t /*num_shared*/, bool /*is_all*/) const override {
    return true;
  }
  void fork(const BlockTable& from, BlockTable& to, std::int64_t num_computed) override;
  void release(BlockTable& table, const NodePlace& end, WhenEvicted when_evicted) override;
  void forget(BlockId /*block*/) override {}
  bool has(PrefixNode node) const override { return shared_.index.block(node) != kNoBlock; }
  bool is_worth_record(PrefixNode node) const override { return has(node); }
  std::int64_t bytes(const KvBytes& all) const override { return all.block; }
  void locate(PrefixNode /*node*/, KvExtras& /*out*/) const override {}
  void hold(BlockTable& /*table*/, KvExtras& /*out*/) override {}
  void check_integrity() const override;

 private:
  void evict_oldest();

  const std::vector<KvGroup*>& beside_;
};

}  // namespace quire
