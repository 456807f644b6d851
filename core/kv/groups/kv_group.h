// KvGroup: the state that layers of one kind keep for sequences: all blocks (Full), parts of the last ones (Window), or
// a recurrent state (State). Engine thread only. KvCache asks each group of its list; groups that the model lacks are
// not in it. Invariant: a prefix is matched only as far as every group has all that the next token needs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/kv/block_table.h"
#include "core/kv/index/prefix_index.h"
#include "core/kv/pool/block_pool.h"

namespace quire {

// The computed part of a sequence: whole blocks to share, then the first tokens of one block to copy.
struct PrefixMatch {
  PrefixNode node{};
  std::int32_t num_blocks = 0;        // beyond those the table has entered
  std::int32_t num_unreferenced = 0;  // blocks taken or copied that are in the pool's cached list
  std::int32_t num_unpinned = 0;      // window parts that no sequence pins
  BlockId partial_block = kNoBlock;
  std::int32_t num_partial_tokens = 0;
  StateId state = kNoState;  // the snapshot after all of that
};

// An evicted block's content is offered to the lower tiers, or forgotten and computed again.
enum class WhenEvicted { kOffered, kForgotten };

// Events that the tiers below the pool follow.
class KvCacheListener {
 public:
  virtual ~KvCacheListener() = default;
  // Called immediately before a block's content leaves the pool.
  virtual void before_eviction(PrefixNode node, WhenEvicted what) = 0;
  // Called before a full node loses content of a group that is worth keeping.
  virtual void before_loss(PrefixNode node) = 0;
  // Called when a full node's content was computed into the pool, or when content of a group becomes worth keeping: a
  // recurrent state after all of the node's tokens, or a window part.
  virtual void after_entry(PrefixNode node) noexcept = 0;
  // Called before a table is closed whose prefix is being restored.
  virtual void before_close(BlockTable& table) = 0;
  // Called when a running sequence lacks blocks: frees blocks that only restores and transfers hold; false if there are
  // none.
  virtual bool give_way() = 0;
  // Whether the next step copies the block's content away, or other content into it: it must not be written before.
  virtual bool is_moving_next(BlockId block) const = 0;
};

// The blocks and the tree of contents, which all groups share.
struct KvShared {
  KvShared(std::int64_t num_blocks, std::int32_t size, BlockHash hash, std::string identity)
      : block_size(size), blocks(num_blocks), index(num_blocks, size, hash, std::move(identity)) {}

  std::int64_t blocks_for(std::int64_t num_tokens) const { return (num_tokens + block_size - 1) / block_size; }

  const std::int32_t block_size;
  BlockPool blocks;
  PrefixIndex index;
  KvCacheListener* listener = nullptr;  // null: there is none
};

// A place in the tree: after the first tokens of a node.
struct NodePlace {
  PrefixNode node = kNoNode;
  std::int32_t num_tokens = 0;
};

// Bytes that the groups keep of one block.
struct KvBytes {
  std::int64_t block = 0;
  std::int64_t part = 0;   // layers with a window; 0: there are none
  std::int64_t state = 0;  // recurrent; 0: there is none
};

// The part and the state stored beside one block.
struct KvExtras {
  PartId part = kNoPart;
  StateId state = kNoState;
};

class KvGroup {
 public:
  explicit KvGroup(KvShared& shared) : shared_(shared) {}
  virtual ~KvGroup() = default;
  KvGroup(const KvGroup&) = delete;
  KvGroup& operator=(const KvGroup&) = delete;

  // A sequence can continue after `num_blocks` full blocks if shows() is true for all of them from first_needed() on.
  virtual bool shows(PrefixNode node) const = 0;
  virtual std::int64_t first_needed(std::int64_t num_blocks) const = 0;
  // Whether it can continue after the first tokens of the next block. is_whole: it can at that block's beginning.
  virtual bool shows_inside(const NodePlace& place, bool is_whole) const = 0;
  // The best place inside a block below `parent`, for a group that keeps content at few such places.
  virtual std::optional<PrefixIndex::Partial> find_inside(PrefixNode /*parent*/,
                                                          std::span<const TokenId> /*tokens*/) const {
    return {};
  }
  // Adds the match's cached places to its counts; true if a copy needs room beside the sequence.
  virtual bool count(const BlockTable& /*table*/, PrefixMatch& /*match*/) const { return false; }

  // A table's life. `admit` takes over the match; `copy_inside` follows once its new blocks are there.
  virtual bool can_admit() const { return true; }
  virtual void admit(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& copies,
                     std::int64_t num_tokens) = 0;
  virtual void copy_inside(BlockTable& /*table*/, const PrefixMatch& /*match*/, std::vector<BlockCopy>& /*copies*/) {}
  // Makes room for `num_tokens` tokens, and for a copy of the shared last block; false without room. Call `grow` next.
  virtual bool make_room(const BlockTable& /*table*/, std::int64_t /*num_tokens*/, bool /*copies_tail*/) {
    return true;
  }
  virtual void grow(BlockTable& /*table*/, std::int64_t /*num_tokens*/) {}
  // The table's last block is a copy from now on.
  virtual void copy_tail(BlockTable& /*table*/, BlockId /*from*/, BlockId /*to*/, std::vector<BlockCopy>& /*copies*/) {}
  // Whether a running sequence may take over blocks that were computed meanwhile, after any block.
  virtual bool skips_tokens() const { return true; }
  // The table's next block becomes one that another has computed; false, and nothing changed, where it cannot.
  virtual bool adopt(BlockTable& /*table*/, BlockId /*found*/) { return true; }
  // The table replaced its block by one of equal content, which it holds by now.
  virtual void replace(BlockId /*own*/, BlockId /*found*/) {}
  // `num_computed` tokens are computed: frees the places that no further token needs.
  virtual void let_go(BlockTable& /*table*/, std::int64_t /*num_computed*/) {}
  virtual bool can_fork(const BlockTable& table, std::int64_t num_shared, bool is_all) const = 0;
  virtual void fork(const BlockTable& from, BlockTable& to, std::int64_t num_computed) = 0;
  // `end`: where the table's computed tokens end in the tree.
  virtual void release(BlockTable& table, const NodePlace& end, WhenEvicted when_evicted) = 0;
  // The content of a block that no sequence holds is about to go.
  virtual void forget(BlockId block) = 0;

  // Records in the tiers ask whether the pool has the group's content of a full node, whether that is worth a record,
  // and whether copies that are due will bring it.
  virtual bool has(PrefixNode node) const = 0;
  virtual bool is_worth_record(PrefixNode node) const = 0;
  virtual bool awaits(PrefixNode /*node*/) const { return false; }
  virtual std::int64_t bytes(const KvBytes& all) const = 0;
  virtual void locate(PrefixNode node, KvExtras& out) const = 0;
  // Gives the table's last block the group's content, as far as there is room. The places are set in `out`; the caller
  // writes their content at once.
  virtual bool can_hold(bool /*leaves_spare*/) const { return true; }
  virtual void hold(BlockTable& table, KvExtras& out) = 0;

  virtual void check_integrity() const = 0;  // O(what the group keeps)

 protected:
  KvShared& shared_;
};

// Largest number of groups in a model.
inline constexpr std::size_t kMostKvGroups = 4;
using KvGroups = std::span<KvGroup* const>;

// Walks a path of blocks and finds how far along it a sequence can continue: the minimum over groups.
class KvPath {
 public:
  KvPath(KvGroups groups, std::int64_t num_blocks) : groups_(groups), num_blocks_(num_blocks) {
    first_shown_.fill(num_blocks);
  }
  // Adds the next block; shows(i) tells whether group number i has its content.
  template <class Shows>
  void add(Shows&& shows) {
    ++num_blocks_;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (!shows(i)) first_shown_[i] = num_blocks_;
    }
  }
  void add(PrefixNode node) {
    add([&](std::size_t i) { return groups_[i]->shows(node); });
  }
  bool goes_on(std::size_t i) const { return first_shown_[i] <= groups_[i]->first_needed(num_blocks_); }
  bool goes_on() const {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (!goes_on(i)) return false;
    }
    return true;
  }

 private:
  KvGroups groups_;
  std::int64_t num_blocks_;
  std::array<std::int64_t, kMostKvGroups> first_shown_;  // by group: first block of the shown rest
};

}  // namespace quire
