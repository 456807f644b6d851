// KvCache: the blocks of sequences: match a prefix, grow, commit, fork, release. Engine thread only. It knows the
// tokens of each block, never its content: copies are returned for the caller to do before the next forward pass.
// Invariants: what asks for blocks gets all or nothing; a block is written only by its one owner, a shared one is
// copied first; a block is found by its content only once that content has been computed; a parent outlives its
// children. Of models with recurrent layers a prefix is matched only as far as a snapshot of the state, of those that
// keep parts for a window as far as the window before its end is there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/kv/block_table.h"
#include "core/kv/pool/block_pool.h"
#include "core/kv/pool/state_pool.h"
#include "core/kv/pool/window_pool.h"
#include "core/kv/prefix_index.h"

namespace quire {

// What of a sequence is already computed: whole blocks to share, then the first tokens of one block to copy.
struct PrefixMatch {
  PrefixNode node{};
  std::int32_t num_blocks = 0;        // beyond those the table has entered
  std::int32_t num_unreferenced = 0;  // of what is taken and copied, blocks in the pool's cached list
  std::int32_t num_unpinned = 0;      // and parts that no sequence pins
  BlockId partial_block = kNoBlock;
  std::int32_t num_partial_tokens = 0;
  StateId state = kNoState;  // the snapshot after all of that
};

// Layers with a window keep less than the others: parts of some blocks.
struct KvWindow {
  std::int64_t num_tokens = 0;  // that a token sees, itself among them
  std::int64_t num_parts = 0;   // 0: there are no such layers, or they keep as much as the others
};

// Room in the pool of blocks, and among the parts that layers with a window keep.
struct KvRoom {
  std::int64_t blocks = 0;
  std::int64_t parts = 0;

  bool fits(const KvRoom& available) const { return blocks <= available.blocks && parts <= available.parts; }
  KvRoom& operator+=(const KvRoom& other) {
    blocks += other.blocks;
    parts += other.parts;
    return *this;
  }
  KvRoom& operator-=(const KvRoom& other) {
    blocks -= other.blocks;
    parts -= other.parts;
    return *this;
  }
};

// What becomes of a block's content when its room is needed: others may be offered it, or it is computed again.
enum class WhenEvicted { kOffered, kForgotten };

// What the tiers below hear of.
class KvCacheListener {
 public:
  virtual ~KvCacheListener() = default;
  // In the moment before a block's content leaves the pool.
  virtual void before_eviction(PrefixNode node, WhenEvicted what) = 0;
  // In the moment before a node's recurrent state, which stands after all of its tokens, leaves the pool of states.
  virtual void before_snapshot_leaves(PrefixNode node) = 0;
  // In the moment before a block loses the part for windows that was worth keeping.
  virtual void before_part_leaves(PrefixNode node) = 0;
  // A full node's content has entered the pool by being computed, or something beside it is worth keeping from now on:
  // a recurrent state that will stand after all of its tokens, or its part for windows.
  virtual void after_entry(PrefixNode node) noexcept = 0;
  // A table whose prefix is being restored is closed.
  virtual void before_close(BlockTable& table) = 0;
  // A running sequence lacks blocks: frees those that are only held to be handed over; false where there are none.
  virtual bool give_way() = 0;
};

class KvCache {
 public:
  KvCache(std::int64_t num_blocks, std::int32_t block_size, bool enable_prefix_caching, BlockHash hash = content_hash,
          std::string identity = {}, std::int64_t num_states = 0, const KvWindow& window = {});

  // Gives an empty table its place in the tree; close() gives the place back (the table holds no blocks any more).
  void open(BlockTable& table, const std::string& salt);
  void open(BlockTable& table, const BlockTable& beside);  // under the same salt
  void close(BlockTable& table);

  // The longest computed prefix of `tokens` beyond what the table has entered, using at most `limit` of them. The table
  // keeps the chain keys that this computes: tokens it has seen must not change until close().
  PrefixMatch match(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit) const;
  // Room in the table for so many tokens, so that growing to it allocates nothing.
  void reserve(BlockTable& table, std::int64_t num_tokens) const;
  // Takes the match's blocks and new ones until the table holds `num_tokens` tokens. False, and nothing changed,
  // without room.
  bool admit(BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens, std::vector<BlockCopy>& copies);
  // Makes room for `num_tokens` tokens, those from num_computed on writable. False, and nothing changed, without room.
  bool grow(BlockTable& table, std::int64_t num_computed, std::int64_t num_tokens, std::vector<BlockCopy>& copies);
  // Replaces the blocks about to be computed, or adds to them, by ones that others have computed meanwhile; returns the
  // tokens gained.
  std::int64_t adopt(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed, std::int64_t limit);
  // Enters the blocks that became full. The first num_computed of `tokens` are in the table's blocks.
  void commit(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed);
  // Enters the last block although it is not full: others may copy it. Returns the node that holds these tokens, which
  // may be another one's; kNoNode where there is none.
  PrefixNode enter_partial(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed);
  // Keeps a copy of the sequence's recurrent state, which stands after num_computed tokens, where a prompt that begins
  // with them finds it. The copy is one of take_due_copies().
  void keep_snapshot(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed);
  // Where in a prompt snapshots are to be made, and chunks to end; ascending, at ends of blocks. A little before its
  // end, since what a template adds there is often not repeated in the conversation's next turn; after its first
  // message, which many conversations begin with; and before its last one, which a client may ask again. message_ends:
  // the tokens up to the end of each message.
  std::vector<std::int64_t> snapshot_borders(std::int64_t num_prompt_tokens,
                                             std::span<const std::int64_t> message_ends) const;
  // A snapshot is made at least after so many computed tokens, besides those
  // of prompts and of sequences that end.
  void set_retained_share(double share) { pool_.set_retained_share(share); }
  void set_snapshot_interval(std::int64_t num_tokens) { snapshot_interval_ = num_tokens; }
  // Puts what is to be copied before anything else of the next step, recurrent states, at the beginning of its copies.
  void take_due_copies(std::vector<BlockCopy>& copies);
  // `to` (open, empty) shares the blocks of `from`'s first num_computed tokens.
  void fork(const BlockTable& from, BlockTable& to, std::int64_t num_computed);
  // Frees the recurrent state, which was computed from other tokens than the table's.
  void drop_state(BlockTable& table);
  // The next step takes the recurrent state over drafts: a copy of it is kept from before, where more than `num_others`
  // places are free. False, and nothing changed, where not.
  bool keep_state_before_drafts(BlockTable& table, std::int64_t num_others, std::vector<BlockCopy>& copies);
  // All drafts of that step were right, or the state is that from before the step again.
  void settle_drafts(BlockTable& table, bool all_right);
  // Frees all blocks, last first; computed content stays in the cache until its blocks are needed. A recurrent state
  // becomes a snapshot: it must stand after num_computed tokens.
  void release(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed,
               WhenEvicted when_evicted = WhenEvicted::kOffered);

  // The tiers below bring back some of the table's prefix, until end_restore().
  void begin_restore(BlockTable& table) { table.is_restoring = true; }
  void end_restore(BlockTable& table) {
    table.is_restoring = false;
    ++num_restores_ended_;
  }
  std::uint64_t num_restores_ended() const { return num_restores_ended_; }

  // For the tiers below. `listener` must outlive the cache's use; null: there is none.
  void set_listener(KvCacheListener* listener) { listener_ = listener; }
  PrefixIndex& mutable_index() { return index_; }
  // The key of the table's block number `index`, which `tokens` fill.
  const ChainKey& key_at(BlockTable& table, std::span<const TokenId> tokens, std::int64_t index) const;
  // The table, all of whose blocks are entered, continues with `node`, a child of its present node: with the block that
  // the node has, or a new one whose content the caller writes at once. kNoBlock, and nothing changed, without room.
  struct Taken {
    BlockId block = kNoBlock;
    bool is_new = false;
    PartId new_part = kNoPart;
  };
  // with_part: the table pins the block's part from then on, or a new one whose content the caller writes as well. So
  // it must for all blocks that it takes after this one.
  Taken take(BlockTable& table, PrefixNode node, bool with_part = false);
  // Of a node in the pool: its block's part for windows, and whether that is worth keeping.
  PartId part_of(PrefixNode node) const { return parts_.part_of(index_.block(node)); }
  bool has_part(PrefixNode node) const { return index_.block(node) != kNoBlock && part_of(node) != kNoPart; }
  bool keeps_part(PrefixNode node) const { return has_part(node) && parts_.is_kept(index_.block(node)); }
  // Of the blocks of so many computed tokens, the first whose part is kept for the next ones: that which the first
  // token after the last full block sees, so that a sequence can go on there where what follows is lost. A full one at
  // least is kept, for kernels read past a window's beginning.
  std::int64_t first_kept(std::int64_t num_computed) const {
    const std::int64_t num_full = num_computed / block_size_;
    const std::int64_t first_seen =
        std::max<std::int64_t>(0, num_full * block_size_ - window_tokens_ + 1) / block_size_;
    return std::min(first_seen, std::max<std::int64_t>(0, num_full - 1));
  }
  // Whether a state will stand there once copies that are due are done.
  bool awaits_state(PrefixNode node) const { return index_.snapshot_tokens(node) == block_size_; }
  // Whether a state is kept that stands after all of a full node's tokens, and has been computed.
  bool has_state_after(PrefixNode node) const;
  // A place for such a state, whose content the caller writes at once; kNoState without room.
  StateId keep_state_after(PrefixNode node);

  std::int32_t block_size() const { return block_size_; }
  std::int64_t blocks_for(std::int64_t num_tokens) const { return (num_tokens + block_size_ - 1) / block_size_; }
  // New blocks that admit() would have to find, with those the match would take out of the cached list.
  std::int64_t blocks_needed(const BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens) const;
  std::int64_t match_tokens(const PrefixMatch& match) const {
    return std::int64_t{match.num_blocks} * block_size_ + match.num_partial_tokens;
  }
  // Room that admit() would take out of what is available, and that there is now and in all.
  KvRoom room_needed(const BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens) const;
  KvRoom available() const { return {pool_.num_available(), parts_.num_available()}; }
  KvRoom capacity() const { return {pool_.num_blocks(), parts_.num_parts()}; }
  // What a sequence of so many tokens holds at most when it grows token by token.
  KvRoom most_room(std::int64_t num_tokens) const;
  // Tokens to which the table can grow with the parts that are promised to it and available; no fewer than a block more
  // where room_needed() was there when it was admitted for them.
  std::int64_t tokens_with_parts(const BlockTable& table, std::int64_t num_computed) const;
  // The parts that a token after the first `position` tokens sees, which are computed and not yet behind the window,
  // are to be cached longer than others: sequences are likely to branch off there.
  void keep_window(BlockTable& table, std::int64_t position);
  const WindowPool& window() const { return parts_; }
  bool has_window() const { return parts_.num_parts() > 0; }
  const BlockPool& pool() const { return pool_; }
  const PrefixIndex& index() const { return index_; }
  const StatePool& states() const { return states_; }
  bool can_keep_state() const { return !has_states() || states_.num_available() > 0; }
  // Whether the table's first num_computed tokens can be shared: what is kept beside blocks is kept of the end only.
  bool can_fork(const BlockTable& table, std::int64_t num_computed) const {
    return can_keep_state() && (!has_window() || first_kept(num_computed) >= table.pinned_begin);
  }
  bool has_states() const { return states_.num_states() > 0; }
  bool prefix_caching() const { return prefix_caching_; }
  void check_integrity() const;  // O(num_blocks)

 private:
  bool make_room(std::int64_t num_blocks);
  void leave_tree(BlockId block);
  PrefixMatch match_snapshot(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit) const;

  // kv_cache_window.cpp: parts of blocks.
  PrefixMatch match_window(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit) const;
  std::int64_t parts_per_sequence() const { return WindowPool::parts_per_sequence(window_tokens_, block_size_); }
  std::int64_t parts_to_promise(std::int64_t num_matched, std::int64_t num_tokens) const;
  void begin_window(BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens);
  void copy_partial_part(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& copies);
  void pin_computed(BlockTable& table, std::int64_t num_computed);
  bool pin_adopted(BlockTable& table, BlockId found);
  bool has_parts_to_grow(const BlockTable& table, std::int64_t num_tokens, bool shared_tail) const;
  void give_part(BlockTable& table, BlockId block);
  PartId hold_part(BlockTable& table);
  void give_parts(BlockTable& table, std::int64_t num_tokens);
  void hand_over_part(BlockId from, BlockId to);
  void unpin_behind(BlockTable& table, std::int64_t num_computed);
  void unpin_all(BlockTable& table);
  void check_parts() const;

  void release_block(BlockId block, bool keep);
  void copy_shared_tail(BlockTable& table, std::size_t tail, std::vector<BlockCopy>& copies);
  StateId take_state();
  StateId leaving_snapshot() const;
  bool is_due(StateId snapshot) const;
  struct Snapshot {
    StateId state = kNoState;
    std::int32_t num_tokens = 0;  // of its node
  };
  Snapshot take_off(PrefixNode node);
  void put_on(PrefixNode node, const Snapshot& snapshot);
  void keep_part(BlockId block);
  // Where the state after num_computed tokens is kept, after how many tokens of that node; kNoNode where it cannot be.
  PrefixNode node_for_snapshot(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed,
                               std::int32_t& num_tokens);
  void let_go_of_state(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed);
  void evict_oldest();
  void append_new(BlockTable& table, std::int64_t num_blocks);
  void enter_full(BlockTable& table, const ChainKey& key, std::span<const TokenId> content);

  const std::int32_t block_size_;
  const bool prefix_caching_;
  BlockPool pool_;
  PrefixIndex index_;
  StatePool states_;
  const std::int64_t window_tokens_;
  WindowPool parts_;
  std::int64_t snapshot_interval_ = 2048;
  std::vector<BlockCopy> due_copies_;
  KvCacheListener* listener_ = nullptr;
  std::uint64_t num_restores_ended_ = 0;
};

}  // namespace quire
