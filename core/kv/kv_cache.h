// KvCache: the blocks of sequences: match a prefix, grow, commit, fork, release. Engine thread only. It is a tree of
// contents and a short list of groups, and asks each. It knows the tokens of each block, never its content: copies are
// returned for the caller to do before the next forward pass. Invariants: a request for blocks gets all or nothing; a
// block is written only by its one owner, a shared one is copied first; a block is found by its content only once that
// content has been computed; a parent outlives its children; a prefix is matched only as far as all groups can
// continue.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/kv/block_table.h"
#include "core/kv/groups/full_group.h"
#include "core/kv/groups/kv_group.h"
#include "core/kv/groups/state_group.h"
#include "core/kv/groups/window_group.h"

namespace quire {

// Blocks and window parts that are free or can be evicted.
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

class KvCache {
 public:
  KvCache(std::int64_t num_blocks, std::int32_t block_size, bool enable_prefix_caching, BlockHash hash = content_hash,
          std::string identity = {}, std::int64_t num_states = 0, const KvWindow& window = {});

  // Gives an empty table its place in the tree; close() gives the place back (the table holds no blocks any more).
  void open(BlockTable& table, const std::string& salt);
  void open(BlockTable& table, const BlockTable& beside);  // opens `table` under the salt of `beside`
  void close(BlockTable& table);

  // The longest computed prefix of `tokens` beyond what the table has entered, using at most `limit` of them. The table
  // keeps the chain keys that this computes: tokens it has seen must not change until close().
  PrefixMatch match(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit) const;
  // Reserves memory in the table for `num_tokens` tokens, so that growing to it allocates nothing.
  void reserve(BlockTable& table, std::int64_t num_tokens) const;
  // Takes the match's blocks and new ones until the table holds `num_tokens` tokens. False, and nothing changed,
  // without room.
  bool admit(BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens, std::vector<BlockCopy>& copies);
  // Makes room for `num_tokens` tokens, those from num_computed on writable. False, and nothing changed, without room.
  bool grow(BlockTable& table, std::int64_t num_computed, std::int64_t num_tokens, std::vector<BlockCopy>& copies);
  // Takes blocks that others have computed meanwhile, in place of the next ones to compute or after them; returns the
  // tokens gained.
  std::int64_t adopt(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed, std::int64_t limit);
  // Enters the blocks that became full. The first num_computed of `tokens` are in the table's blocks.
  void commit(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed);
  // Enters the last block although it is not full: others may copy it. Returns the node that holds these tokens, which
  // may be another one's; kNoNode where there is none.
  PrefixNode enter_partial(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed);
  // Keeps everything that a prompt with the same first num_computed tokens needs to continue after them: a copy of the
  // recurrent state, listed in take_due_copies(), and the parts before it.
  void keep_snapshot(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed);
  // Places in a prompt where keep_snapshot() is called and chunks end; ascending, at ends of blocks: a little before
  // the prompt's end, since text that a template adds there is often not repeated in the next turn; after the first
  // message, which many conversations share; and before the last one, which a client may ask again. message_ends: the
  // tokens up to the end of each message. Empty if a sequence can continue after any block.
  std::vector<std::int64_t> snapshot_borders(std::int64_t num_prompt_tokens,
                                             std::span<const std::int64_t> message_ends) const;
  void set_retained_share(double share) { shared_.blocks.set_retained_share(share); }
  // Fewest computed tokens between two snapshots; prompts and sequences that end have snapshots of their own.
  void set_snapshot_interval(std::int64_t num_tokens) { snapshot_interval_ = num_tokens; }
  // Inserts the due copies of recurrent states at the front, since they must run before the step's other copies.
  void take_due_copies(std::vector<BlockCopy>& copies) { states_.take_due_copies(copies); }
  // `to` (open, empty) shares the blocks of `from`'s first num_computed tokens.
  void fork(const BlockTable& from, BlockTable& to, std::int64_t num_computed);
  // Frees the recurrent state, which was computed from other tokens than the table's.
  void drop_state(BlockTable& table) { states_.drop(table); }
  // The next step may compute wrong drafts: keeps a copy of the recurrent state if more than `num_others` states are
  // free. False, and nothing changed, otherwise.
  bool keep_before_drafts(BlockTable& table, std::int64_t num_others, std::vector<BlockCopy>& copies) {
    return skips_tokens_ || states_.keep_before_drafts(table, num_others, copies);
  }
  // Ends the step with drafts: if one was wrong, the state is again the copy from before the step.
  void settle_drafts(BlockTable& table, bool all_right) { states_.settle_drafts(table, all_right); }
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

  // Hooks for the lower tiers. `listener` must outlive the cache's use; null: none.
  void set_listener(KvCacheListener* listener) { shared_.listener = listener; }
  bool is_moving_next(BlockId block) const {
    return shared_.listener != nullptr && shared_.listener->is_moving_next(block);
  }
  PrefixIndex& mutable_index() { return shared_.index; }
  // The groups with content beside blocks, in a record's order.
  KvGroups beside() const { return beside_; }
  // The key of the table's block number `index`, which `tokens` fill.
  const ChainKey& key_at(BlockTable& table, std::span<const TokenId> tokens, std::int64_t index) const;
  // Extends the table, all of whose blocks are entered, by `node`, a child of its present node: by the node's own
  // block, or by a new one whose content the caller writes at once. The same holds for the first `num_groups` groups
  // beside the blocks. kNoBlock, and nothing changed, without room.
  struct Taken {
    BlockId block = kNoBlock;
    bool is_new = false;
    KvExtras extras{};  // newly taken parts and states
  };
  Taken take(BlockTable& table, PrefixNode node, std::size_t num_groups = 0);

  std::int32_t block_size() const { return shared_.block_size; }
  std::int64_t blocks_for(std::int64_t num_tokens) const { return shared_.blocks_for(num_tokens); }
  std::int64_t match_tokens(const PrefixMatch& match) const {
    return std::int64_t{match.num_blocks} * block_size() + match.num_partial_tokens;
  }
  // Room that admit() would take, room that is available now, and all room.
  KvRoom room_needed(const BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens) const {
    return {full_.blocks_needed(table, match, num_tokens), window_.parts_needed(table, match, num_tokens)};
  }
  KvRoom available() const { return {pool().num_available(), window().num_available()}; }
  KvRoom capacity() const { return {pool().num_blocks(), window().num_parts()}; }
  // The most room that a sequence of `num_tokens` tokens holds when it grows token by token.
  KvRoom most_room(std::int64_t num_tokens) const {
    return {blocks_for(num_tokens) + 1, window_.most_parts(num_tokens)};
  }
  // Room that `num_blocks` blocks take while they are computed.
  KvRoom room_of_blocks(std::int64_t num_blocks) const {
    return {num_blocks, window().num_parts() > 0 ? num_blocks : 0};
  }
  // Tokens to which the table can grow with the parts that are promised to it and available: at least one block more if
  // it was admitted with room_needed().
  std::int64_t tokens_with_parts(const BlockTable& table, std::int64_t num_computed) const {
    return window_.tokens_with_parts(table, num_computed);
  }
  // Caches longer the parts that a token after the first `position` tokens sees, if they are computed and not yet
  // behind the window: sequences are likely to branch off there.
  void keep_window(BlockTable& table, std::int64_t position) { window_.keep(table, position); }
  const WindowPool& window() const { return window_.pool(); }
  const BlockPool& pool() const { return shared_.blocks; }
  const PrefixIndex& index() const { return shared_.index; }
  const StatePool& states() const { return states_.pool(); }
  // Whether a sequence can continue after any block: otherwise only at borders, and a wrong draft costs a step.
  bool skips_tokens() const { return skips_tokens_; }
  bool can_admit() const;
  // Whether num_shared of the table's num_computed tokens can be shared.
  bool can_fork(const BlockTable& table, std::int64_t num_shared, std::int64_t num_computed) const;
  bool prefix_caching() const { return prefix_caching_; }
  void check_integrity() const;  // O(num_blocks)

 private:
  void leave_tree(BlockId block);
  void enter_full(BlockTable& table, const ChainKey& key, std::span<const TokenId> content);
  NodePlace place_after(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed);
  // The full child of `node` that holds the block of `tokens` at `position`, if its block is in the pool.
  PrefixNode pooled_child(BlockTable& table, PrefixNode node, std::span<const TokenId> tokens,
                          std::int64_t position) const;
  PrefixIndex::Partial find_inside(PrefixNode parent, std::span<const TokenId> tokens) const;
  std::optional<PrefixMatch> inside(const PrefixMatch& path, const KvPath& whole,
                                    const PrefixIndex::Partial& partial) const;
  PrefixMatch best_of(const BlockTable& table, PrefixMatch whole, std::optional<PrefixMatch> inside,
                      std::int64_t num_tokens) const;

  const bool prefix_caching_;
  KvShared shared_;
  std::vector<KvGroup*> beside_;  // the groups below that the model has, but for `full_`
  FullGroup full_;
  WindowGroup window_;
  StateGroup states_;
  std::vector<KvGroup*> groups_;  // in the order of taking room; released in reverse
  bool skips_tokens_ = true;
  std::int64_t snapshot_interval_ = 2048;
  std::uint64_t num_restores_ended_ = 0;
};

}  // namespace quire
