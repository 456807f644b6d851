// WindowPool: the pool of the parts of blocks that layers with a window keep. A block gets a part when it is computed
// and may lose it once it is behind the window of every sequence. Engine thread only. It knows the block of each part,
// never the numbers in it. A sequence that sees a part references it ("pins"); parts that were marked by keep() leave
// after all others. Invariants: a block has at most one part; promised parts are available; each operation is O(1) and
// allocates no memory.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv/pool/pool.h"

namespace quire {

class WindowPool {
 public:
  WindowPool(std::int64_t num_parts, std::int64_t num_blocks);

  // The most parts that a sequence holds while it grows block by block: its window, the block that it leaves and the
  // block that it enters.
  static constexpr std::int64_t parts_per_sequence(std::int64_t window_tokens, std::int64_t block_size) {
    return (window_tokens + block_size - 1) / block_size + 2;
  }
  // Fewer parts than this could be too few for a sequence alone: a stream grows by up to kMostAtOnce tokens. A pool
  // with fewer blocks needs a part for each.
  static constexpr std::int64_t kMostAtOnce = 32;
  static constexpr std::int64_t least_parts(std::int64_t window_tokens, std::int64_t block_size) {
    return parts_per_sequence(window_tokens, block_size) + (kMostAtOnce + block_size - 1) / block_size + 1;
  }

  PartId part_of(BlockId block) const { return part_of_block_[static_cast<std::size_t>(block.value)]; }
  bool has_part(BlockId block) const { return part_of(block) != kNoPart; }
  bool is_cached(BlockId block) const { return has_part(block) && parts_.is_cached(part_of(block)); }
  // Gives a block without a part one, pinned once: a free one, or the cached one that leaves next. One of them at least
  // must be there.
  void assign(BlockId block);
  // The block whose part assign() would take; kNoBlock: it would take none.
  BlockId next_to_leave() const;
  // pin(), unpin() and keep() take blocks with a part.
  void pin(BlockId block);
  bool unpin(BlockId block);  // whether that was the last pin
  void keep(BlockId block);   // the part must be pinned
  bool is_kept(BlockId block) const { return parts_.cache_class(part_of(block)) == CacheClass::kRetained; }
  // The block's content is gone: its part, unpinned, becomes free.
  void drop(BlockId block);
  // `to`, which has no part, takes over that of `from`, with its pins.
  void move(BlockId from, BlockId to);

  // A number of parts reserved for a sequence, not yet chosen; fulfil() ends the reservation, mostly to assign them.
  void promise(std::int64_t num_parts);
  void fulfil(std::int64_t num_parts);

  std::int64_t num_parts() const { return parts_.size(); }
  std::int64_t num_free() const { return parts_.num_free(); }
  std::int64_t num_cached() const { return parts_.num_cached(); }
  std::int64_t num_pinned() const { return parts_.num_referenced(); }
  std::int64_t num_promised() const { return num_promised_; }
  std::int64_t num_available() const { return parts_.num_available() - num_promised_; }
  std::int64_t peak_pinned() const { return parts_.peak_referenced(); }

  void check_integrity() const;  // O(num_parts)

 private:
  PartId& mutable_part_of(BlockId block) { return part_of_block_[static_cast<std::size_t>(block.value)]; }
  BlockId& block_of(PartId part) { return block_of_part_[static_cast<std::size_t>(part.value)]; }

  Pool<PartId> parts_;
  std::vector<BlockId> block_of_part_;  // kNoBlock: free
  std::vector<PartId> part_of_block_;
  std::int64_t num_promised_ = 0;
};

}  // namespace quire
