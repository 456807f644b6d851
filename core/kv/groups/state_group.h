// StateGroup: recurrent states: one of each running sequence, and snapshots of such states after nodes of the tree.
// Engine thread only. A sequence continues only behind a snapshot. Invariant: a node keeps one snapshot, the one
// after most of its tokens; it leaves with the node's block.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/kv/groups/kv_group.h"
#include "core/kv/pool/state_pool.h"

namespace quire {

class StateGroup final : public KvGroup {
 public:
  StateGroup(KvShared& shared, std::int64_t num_states);

  const StatePool& pool() const { return states_; }

  // A snapshot leaves its node while the block is given another one.
  struct Snapshot {
    StateId state = kNoState;
    std::int32_t num_tokens = 0;  // prefix of its node's tokens that it covers
  };
  Snapshot take_off(PrefixNode node);
  void put_on(PrefixNode node, const Snapshot& snapshot);
  // Keeps a copy of the table's state, which stands at that place; false where there is one already, or no room. The
  // copy is one of take_due_copies().
  bool keep(BlockTable& table, const NodePlace& place, std::int64_t num_computed);
  // Moves the copies that must run first in the next step to the beginning of `copies`.
  void take_due_copies(std::vector<BlockCopy>& copies);
  void drop(BlockTable& table);
  bool keep_before_drafts(BlockTable& table, std::int64_t num_others, std::vector<BlockCopy>& copies);
  void settle_drafts(BlockTable& table, bool all_right);

  bool shows(PrefixNode node) const override { return shared_.index.snapshot_tokens(node) == shared_.block_size; }
  std::int64_t first_needed(std::int64_t num_blocks) const override { return num_blocks - 1; }
  bool shows_inside(const NodePlace& place, bool is_whole) const override;
  std::optional<PrefixIndex::Partial> find_inside(PrefixNode parent, std::span<const TokenId> tokens) const override {
    return shared_.index.find_snapshot(parent, tokens);
  }
  bool can_admit() const override { return states_.num_available() > 0; }
  void admit(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& copies,
             std::int64_t num_tokens) override;
  bool skips_tokens() const override { return false; }
  bool can_fork(const BlockTable& table, std::int64_t num_shared, bool is_all) const override;
  void fork(const BlockTable& from, BlockTable& to, std::int64_t num_computed) override;
  void release(BlockTable& table, const NodePlace& end, WhenEvicted when_evicted) override;
  void forget(BlockId block) override;
  bool has(PrefixNode node) const override { return shows(node) && !is_due(shared_.index.snapshot(node)); }
  bool is_worth_record(PrefixNode node) const override { return has(node); }
  bool awaits(PrefixNode node) const override { return shows(node) && !has(node); }
  std::int64_t bytes(const KvBytes& all) const override { return all.state; }
  void locate(PrefixNode node, KvExtras& out) const override { out.state = shared_.index.snapshot(node); }
  void hold(BlockTable& table, KvExtras& out) override;
  void check_integrity() const override;

 private:
  StateId take();
  StateId leaving_snapshot() const;
  bool is_due(StateId snapshot) const;
  bool can_keep(const NodePlace& place) const;

  StatePool states_;
  std::vector<BlockCopy> due_copies_;
};

}  // namespace quire
