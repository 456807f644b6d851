// BlockPool: metadata of every KV block: its references, and the order in which blocks are allocated. Engine thread
// only. A block is free (nothing in it), cached (unreferenced, its content is kept) or referenced. Cached blocks
// leave by their class, and within it least recently used first; the later classes are bounded, so that they keep no
// more than their part of the pool from the others. All of them can be evicted.
// Invariants: free + cached + referenced = total; an allocation takes all or nothing; each operation is O(1) per block
// and allocates no memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace quire {

inline constexpr BlockId kNoBlock{-1};

// In the order in which they leave. A block has the latest class among those of its users.
enum class CacheClass : std::uint8_t {
  kBackground,  // of batches alone
  kPlain,
  kReturning,  // of conversations that came back
  kRetained,   // a client asked for it to be kept
};

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
  // Of a referenced block: it leaves no earlier than others of that class. A caller that raises a block raises those
  // before it.
  void raise(BlockId block, CacheClass to) {
    CacheClass& own = links_[index(block)].cache_class;
    own = std::max(own, to);
  }
  // The part of the pool that blocks of kRetained are kept in; beyond it the oldest of them go back to kPlain.
  void set_retained_share(double share);
  // Marks a block, until it is shared or released again, as cheaper to recompute than to keep in a lower tier.
  void set_forgettable(BlockId block, bool forgettable) { links_[index(block)].is_forgettable = forgettable; }
  bool is_forgettable(BlockId block) const { return links_[index(block)].is_forgettable; }
  // Marks a cached block as the most recently used.
  void touch(BlockId block);
  // The cached block to give up next, kNoBlock where there is none; drop() frees a cached block.
  BlockId oldest_cached() const { return first_of(0); }
  void drop(BlockId block);
  // The cached block that leaves after this cached one; kNoBlock after the last.
  BlockId next_cached(BlockId block) const {
    const Links& links = links_[index(block)];
    return links.next != kNoBlock ? links.next : first_of(static_cast<std::size_t>(links.cache_class) + 1);
  }
  CacheClass cache_class(BlockId block) const { return links_[index(block)].cache_class; }
  std::int64_t num_cached(CacheClass of) const { return lists_[static_cast<std::size_t>(of)].length; }

  std::int32_t num_references(BlockId block) const { return links_[index(block)].num_references; }
  bool is_cached(BlockId block) const { return links_[index(block)].state == State::kCached; }

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(links_.size()); }
  std::int64_t num_free() const { return num_free_; }
  std::int64_t num_cached() const {
    std::int64_t count = 0;
    for (const List& list : lists_)
      count += list.length;
    return count;
  }
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
    CacheClass cache_class = CacheClass::kBackground;
    bool is_forgettable = false;
  };
  struct List {
    BlockId head = kNoBlock;  // least recently used
    BlockId tail = kNoBlock;
    std::int64_t length = 0;
  };
  static constexpr std::size_t kNumClasses = 4;

  static std::size_t index(BlockId block) { return static_cast<std::size_t>(block.value); }
  void push_free(BlockId block);
  void push_cached(BlockId block);
  void unlink_cached(BlockId block);
  List& list_of(BlockId block) { return lists_[static_cast<std::size_t>(links_[index(block)].cache_class)]; }
  // The block that leaves first of the classes from that one on.
  BlockId first_of(std::size_t number) const {
    while (number < kNumClasses && lists_[number].head == kNoBlock)
      ++number;
    return number < kNumClasses ? lists_[number].head : kNoBlock;
  }

  std::vector<Links> links_;
  BlockId free_head_ = kNoBlock;
  std::array<List, kNumClasses> lists_;
  std::array<std::int64_t, kNumClasses> most_;  // above it the oldest go back to kPlain
  std::int64_t num_free_ = 0;
  std::int64_t peak_referenced_ = 0;
};

}  // namespace quire
