// GoingOut: copies blocks from the pool to the tiers below: as they leave, shortly before they would, or at an engine's
// end. Engine thread only. One copy serves all tiers that lack the node; once its step is done it is handed to disk and
// store. Invariant: a step moves its share of bytes at most, or one block; a node goes out once at a time.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>

#include "core/kv/kv_cache.h"
#include "core/kv/moves/step_moves.h"
#include "core/kv/moves/tier_sources.h"

namespace quire {

class GoingOut {
 public:
  // All must outlive it.
  GoingOut(KvCache& kv, const RecordLayout& layout, TierSources& tiers, StepMoves& step)
      : kv_(kv), index_(kv.mutable_index()), layout_(layout), tiers_(tiers), step_(step) {}

  // Copies the node to the tiers that lack it, or hold less of it, within a step's share. A tier that would have to
  // evict one of `kept` does without the copy.
  void keep(PrefixNode node, std::span<const PrefixNode> kept = {});
  // Copies a full node of the pool with the content of the first `num_groups` groups; records: bits of TierKind.
  void move(PrefixNode node, std::size_t num_groups, bool to_host, std::uint8_t records);
  // Copies the next blocks to be evicted to the tiers while free blocks are few.
  void keep_oldest();
  // Copies the cached blocks among the next `num_blocks` of the pool while the disk has room; false after the last
  // block, and the next call starts again from the first.
  bool keep_next(std::int64_t num_blocks);

  bool can_write(RecordTier& tier, std::int64_t num_bytes) const { return tier.can_take(outgoing_bytes_ + num_bytes); }
  // Whether the disk takes another block now.
  bool has_disk_room() const { return tiers_.disk() != nullptr && can_write(*tiers_.disk(), layout_.block_bytes()); }
  bool contains(PrefixNode node) const { return outgoing_.contains(node); }
  std::size_t size() const { return outgoing_.size(); }
  // The step of a move with records is done: its bytes are handed on.
  void finish(const BlockMove& move);

 private:
  std::int64_t token_bytes(PrefixNode node) const {
    return static_cast<std::int64_t>(index_.tokens(node).size_bytes());
  }
  std::uint8_t records_to_write(PrefixNode node, std::size_t num_groups, std::span<const PrefixNode> kept) const;
  bool is_for_host(PrefixNode node, std::size_t num_groups, std::span<const PrefixNode> kept) const;

  KvCache& kv_;
  PrefixIndex& index_;
  const RecordLayout layout_;
  TierSources& tiers_;
  StepMoves& step_;
  std::unordered_set<PrefixNode> outgoing_;  // nodes on their way to disk or store
  std::int64_t outgoing_bytes_ = 0;
  std::int64_t next_to_persist_ = 0;
};

}  // namespace quire
