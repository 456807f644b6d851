// BlockPool: metadata of every KV block: its references, and the order in which blocks are allocated. Engine thread
// only. A block is free (nothing in it), cached (unreferenced, its content is kept) or referenced. Cached blocks leave
// least recently used first; a part of them, those of conversations that came back, leaves after the others.
// Invariants: free + cached + referenced = total; an allocation takes all or nothing; each operation is O(1) per block
// and allocates no memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace quire {

inline constexpr BlockId kNoBlock{-1};

class BlockPool {
 public:
  explicit BlockPool(std::int64_t num_blocks);

  // Takes out.size() free blocks, last freed first, each with one reference; false, and nothing changed, where fewer
  // are free.
  bool allocate(std::span<BlockId> out);
  // Adds a reference to a cached or referenced block.
  void retain(BlockId block);
  // Drops a reference. The last one frees the block, or keeps it as the most recently used cached one.
  void release(BlockId block, bool keep);
  // From now on the block leaves after those that were not favoured. A caller that favours a block favours those before
  // it.
  void favour(BlockId block) { links_[index(block)].is_favoured = true; }
  // Marks a block, until it is shared or released again, as cheaper to recompute than to keep in a lower tier.
  void set_forgettable(BlockId block, bool forgettable) { links_[index(block)].is_forgettable = forgettable; }
  bool is_forgettable(BlockId block) const { return links_[index(block)].is_forgettable; }
  // Marks a cached block as the most recently used.
  void touch(BlockId block);
  // The cached block to give up next, kNoBlock where there is none; drop() frees a cached block.
  BlockId oldest_cached() const {
    return lists_[kPlain].head != kNoBlock ? lists_[kPlain].head : lists_[kFavoured].head;
  }
  void drop(BlockId block);
  // The cached block that leaves after this cached one; kNoBlock after the last.
  BlockId next_cached(BlockId block) const {
    const Links& links = links_[index(block)];
    return links.next != kNoBlock || links.is_favoured ? links.next : lists_[kFavoured].head;
  }

  std::int32_t num_references(BlockId block) const { return links_[index(block)].num_references; }
  bool is_cached(BlockId block) const { return links_[index(block)].state == State::kCached; }

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(links_.size()); }
  std::int64_t num_free() const { return num_free_; }
  std::int64_t num_cached() const { return lists_[kPlain].length + lists_[kFavoured].length; }
  std::int64_t num_referenced() const { return num_blocks() - num_free_ - num_cached(); }
  std::int64_t num_available() const { return num_free_ + num_cached(); }  // what allocation can reach by evicting
  std::int64_t peak_referenced() const { return peak_referenced_; }

  // Walks everything and aborts where an invariant is broken: O(num_blocks), for idle times and tests.
  void check_integrity() const;

 private:
  enum class State : std::int8_t { kFree, kCached, kReferenced };
  struct Links {
    BlockId previous = kNoBlock;  // of the cached list; the free list is linked by `next` alone
    BlockId next = kNoBlock;
    std::int32_t num_references = 0;
    State state = State::kFree;
    bool is_favoured = false;
    bool is_forgettable = false;
  };
  struct List {
    BlockId head = kNoBlock;  // least recently used
    BlockId tail = kNoBlock;
    std::int64_t length = 0;
  };
  enum : std::size_t { kPlain, kFavoured };

  static std::size_t index(BlockId block) { return static_cast<std::size_t>(block.value); }
  void push_free(BlockId block);
  void push_cached(BlockId block);
  void unlink_cached(BlockId block);
  List& list_of(BlockId block) { return lists_[links_[index(block)].is_favoured ? kFavoured : kPlain]; }

  std::vector<Links> links_;
  BlockId free_head_ = kNoBlock;
  std::array<List, 2> lists_;
  std::int64_t max_favoured_;  // above it the oldest of them go back among the others
  std::int64_t num_free_ = 0;
  std::int64_t peak_referenced_ = 0;
};

}  // namespace quire
