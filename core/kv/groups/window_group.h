// WindowGroup: layers that see the last tokens only keep parts of blocks. Engine thread only. A sequence pins the parts
// that its next token sees, and is promised those that it needs to advance by a block; behind the window they are kept
// until their room is needed. A sequence continues where the parts of its window are there. Invariant: a table's
// pinned parts are those of its blocks from pinned_begin to pinned_end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/kv/groups/full_group.h"
#include "core/kv/groups/kv_group.h"
#include "core/kv/pool/window_pool.h"

namespace quire {

// Layers with a window keep less than the others: parts of some blocks.
struct KvWindow {
  std::int64_t num_tokens = 0;  // window length, the token itself included
  std::int64_t num_parts = 0;   // 0: no window layers, or they keep every token
};

class WindowGroup final : public KvGroup {
 public:
  WindowGroup(KvShared& shared, FullGroup& full, const KvWindow& window);

  const WindowPool& pool() const { return parts_; }
  // Parts that a sequence takes at its admission, and the most that it holds.
  std::int64_t parts_needed(const BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens) const;
  std::int64_t most_parts(std::int64_t num_tokens) const;
  // Tokens to which the table can grow with the parts that are promised to it and available.
  std::int64_t tokens_with_parts(const BlockTable& table, std::int64_t num_computed) const;
  // Caches longer the pinned parts that the token at `position` sees.
  void keep(BlockTable& table, std::int64_t position);

  bool shows(PrefixNode node) const override { return has(node); }
  // The first part that the token after `num_blocks` blocks sees. At least one full part is kept, because kernels read
  // past a window's beginning.
  std::int64_t first_needed(std::int64_t num_blocks) const override {
    const std::int64_t first_seen =
        std::max<std::int64_t>(0, num_blocks * shared_.block_size - window_tokens_ + 1) / shared_.block_size;
    return std::min(first_seen, std::max<std::int64_t>(0, num_blocks - 1));
  }
  bool shows_inside(const NodePlace& place, bool is_whole) const override { return is_whole && has(place.node); }
  bool count(const BlockTable& table, PrefixMatch& match) const override;
  void admit(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& copies,
             std::int64_t num_tokens) override;
  void copy_inside(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& copies) override;
  bool make_room(const BlockTable& table, std::int64_t num_tokens, bool copies_tail) override;
  void grow(BlockTable& table, std::int64_t num_tokens) override;
  void copy_tail(BlockTable& table, BlockId from, BlockId to, std::vector<BlockCopy>& copies) override;
  bool adopt(BlockTable& table, BlockId found) override;
  void replace(BlockId own, BlockId found) override;
  void let_go(BlockTable& table, std::int64_t num_computed) override;
  bool can_fork(const BlockTable& table, std::int64_t num_shared, bool is_all) const override;
  void fork(const BlockTable& from, BlockTable& to, std::int64_t num_computed) override;
  void release(BlockTable& table, const NodePlace& end, WhenEvicted when_evicted) override;
  void forget(BlockId block) override { parts_.drop(block); }
  bool has(PrefixNode node) const override;
  bool is_worth_record(PrefixNode node) const override {
    return has(node) && parts_.is_kept(shared_.index.block(node));
  }
  std::int64_t bytes(const KvBytes& all) const override { return all.part; }
  void locate(PrefixNode node, KvExtras& out) const override { out.part = parts_.part_of(shared_.index.block(node)); }
  bool can_hold(bool leaves_spare) const override {
    return parts_.num_available() > (leaves_spare ? parts_.num_parts() / kSpare : 0);
  }
  void hold(BlockTable& table, KvExtras& out) override;
  void check_integrity() const override;

 private:
  static constexpr std::int64_t kSpare = 16;  // a sixteenth is left to running sequences

  std::int64_t first_kept(std::int64_t num_computed) const { return first_needed(num_computed / shared_.block_size); }
  std::int64_t parts_per_sequence() const { return WindowPool::parts_per_sequence(window_tokens_, shared_.block_size); }
  std::int64_t parts_to_promise(std::int64_t num_matched, std::int64_t num_tokens) const;
  void pin_computed(BlockTable& table, std::int64_t num_computed);
  void give_part(BlockTable& table, BlockId block);
  void keep_part(BlockId block);

  FullGroup& full_;
  const std::int64_t window_tokens_;
  WindowPool parts_;
};

}  // namespace quire
