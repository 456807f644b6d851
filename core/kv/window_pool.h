// WindowPool: metadata of the parts of blocks that layers with a window keep. A block gets a part when it is computed
// and may lose it once it is behind the window of every sequence. Engine thread only. Knows which part is whose, never
// the numbers in it. A part is free, pinned by sequences that see it, or cached: it stays until its room is needed.
// Cached parts leave least recently used first, those that were marked by keep() after all others. Invariants: free +
// pinned + cached = total; promised parts are available; each operation is O(1) and allocates no memory.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/kv/block_pool.h"

namespace quire {

using PartId = Id<struct PartTag, std::int32_t>;
inline constexpr PartId kNoPart{-1};

class WindowPool {
 public:
  WindowPool(std::int64_t num_parts, std::int64_t num_blocks);

  // What a sequence that grows by a block at once holds at most: its window, the block that it leaves and the one that
  // it enters.
  static constexpr std::int64_t parts_per_sequence(std::int64_t window_tokens, std::int64_t block_size) {
    return (window_tokens + block_size - 1) / block_size + 2;
  }
  // Without which a sequence alone could lack parts: a stream grows by up to kMostAtOnce tokens. Of a pool with fewer
  // blocks, all need one.
  static constexpr std::int64_t kMostAtOnce = 32;
  static constexpr std::int64_t least_parts(std::int64_t window_tokens, std::int64_t block_size) {
    return parts_per_sequence(window_tokens, block_size) + (kMostAtOnce + block_size - 1) / block_size + 1;
  }

  PartId part_of(BlockId block) const { return part_of_block_[static_cast<std::size_t>(block.value)]; }
  bool has_part(BlockId block) const { return part_of(block) != kNoPart; }
  bool is_cached(BlockId block) const { return has_part(block) && links_[index(part_of(block))].num_pins == 0; }
  // Gives a block without a part one, pinned once: a free one, or the cached one that leaves next. One of them at least
  // must be there.
  void assign(BlockId block);
  BlockId next_to_leave() const;  // whose part assign() would take; kNoBlock: it would take none
  // Of blocks with a part.
  void pin(BlockId block);
  bool unpin(BlockId block);  // whether that was the last pin
  void keep(BlockId block);   // while it is pinned
  bool is_kept(BlockId block) const { return links_[index(part_of(block))].is_kept; }
  // The block's content is gone: its part, unpinned, becomes free.
  void drop(BlockId block);
  // `to`, which has no part, takes over that of `from`, with its pins.
  void move(BlockId from, BlockId to);

  // A number of parts reserved for a sequence, not yet chosen; fulfil() ends the reservation, mostly to assign them.
  void promise(std::int64_t num_parts);
  void fulfil(std::int64_t num_parts);

  std::int64_t num_parts() const { return static_cast<std::int64_t>(links_.size()); }
  std::int64_t num_free() const { return num_free_; }
  std::int64_t num_cached() const { return lists_[kPlain].length + lists_[kKept].length; }
  std::int64_t num_pinned() const { return num_parts() - num_free_ - num_cached(); }
  std::int64_t num_promised() const { return num_promised_; }
  std::int64_t num_available() const { return num_free_ + num_cached() - num_promised_; }
  std::int64_t peak_pinned() const { return peak_pinned_; }

  void check_integrity() const;  // O(num_parts)

 private:
  struct Links {
    PartId previous = kNoPart;  // of a cached list; the free list is linked by `next` alone
    PartId next = kNoPart;
    BlockId block = kNoBlock;  // kNoBlock: free
    std::int32_t num_pins = 0;
    bool is_kept = false;
  };
  struct List {
    PartId head = kNoPart;  // least recently used
    PartId tail = kNoPart;
    std::int64_t length = 0;
  };
  enum : std::size_t { kPlain, kKept };

  static std::size_t index(PartId part) { return static_cast<std::size_t>(part.value); }
  PartId& slot_of(BlockId block) { return part_of_block_[static_cast<std::size_t>(block.value)]; }
  List& list_of(PartId part) { return lists_[links_[index(part)].is_kept ? kKept : kPlain]; }
  void link(PartId part);
  void unlink(PartId part);
  void free(PartId part);
  std::int64_t check_list(std::size_t list) const;

  std::vector<Links> links_;
  std::vector<PartId> part_of_block_;
  PartId free_head_ = kNoPart;
  std::array<List, 2> lists_;
  std::int64_t num_free_ = 0;
  std::int64_t num_promised_ = 0;
  std::int64_t peak_pinned_ = 0;
};

}  // namespace quire
