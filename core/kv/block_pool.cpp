#include "core/kv/block_pool.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

BlockPool::BlockPool(std::int64_t num_blocks) : links_(static_cast<std::size_t>(num_blocks)) {
  for (std::int64_t i = num_blocks - 1; i >= 0; --i)
    push_free(BlockId{static_cast<std::int32_t>(i)});
}

bool BlockPool::allocate(std::span<BlockId> out) {
  if (static_cast<std::int64_t>(out.size()) > num_free_) return false;
  for (BlockId& block : out) {
    block = free_head_;
    Links& links = links_[index(block)];
    free_head_ = links.next;
    links = {.num_references = 1, .state = State::kReferenced};
  }
  num_free_ -= static_cast<std::int64_t>(out.size());
  peak_referenced_ = std::max(peak_referenced_, num_referenced());
  return true;
}

void BlockPool::retain(BlockId block) {
  Links& links = links_[index(block)];
  QUIRE_CHECK(links.state != State::kFree, "a free block has no content to share");
  if (links.state == State::kCached) {
    unlink_cached(block);
    links.state = State::kReferenced;
    peak_referenced_ = std::max(peak_referenced_, num_referenced());
  }
  ++links.num_references;
}

void BlockPool::release(BlockId block, bool keep) {
  Links& links = links_[index(block)];
  QUIRE_CHECK(links.num_references > 0, "a block is released once per reference");
  if (--links.num_references > 0) return;
  if (keep) {
    push_cached(block);
  } else {
    push_free(block);
  }
}

void BlockPool::touch(BlockId block) {
  if (!is_cached(block)) return;
  unlink_cached(block);
  push_cached(block);
}

void BlockPool::drop(BlockId block) {
  QUIRE_CHECK(is_cached(block), "only a cached block can be evicted");
  unlink_cached(block);
  push_free(block);
}

void BlockPool::push_free(BlockId block) {
  links_[index(block)] = {.next = free_head_, .state = State::kFree};
  free_head_ = block;
  ++num_free_;
}

void BlockPool::push_cached(BlockId block) {
  links_[index(block)] = {.previous = lru_tail_, .state = State::kCached};
  (lru_tail_ == kNoBlock ? lru_head_ : links_[index(lru_tail_)].next) = block;
  lru_tail_ = block;
  ++num_cached_;
}

void BlockPool::unlink_cached(BlockId block) {
  const Links& links = links_[index(block)];
  (links.previous == kNoBlock ? lru_head_ : links_[index(links.previous)].next) = links.next;
  (links.next == kNoBlock ? lru_tail_ : links_[index(links.next)].previous) = links.previous;
  --num_cached_;
}

void BlockPool::check_integrity() const {
  std::int64_t num_free = 0;
  for (BlockId block = free_head_; block != kNoBlock; block = links_[index(block)].next) {
    QUIRE_CHECK(links_[index(block)].state == State::kFree, "the free list holds free blocks");
    QUIRE_CHECK(++num_free <= num_blocks(), "the free list ends");
  }
  std::int64_t num_cached = 0;
  BlockId previous = kNoBlock;
  for (BlockId block = lru_head_; block != kNoBlock; block = links_[index(block)].next) {
    QUIRE_CHECK(is_cached(block) && links_[index(block)].previous == previous, "the cached list is linked both ways");
    QUIRE_CHECK(++num_cached <= num_blocks(), "the cached list ends");
    previous = block;
  }
  QUIRE_CHECK(previous == lru_tail_, "the cached list ends at its tail");
  std::int64_t num_referenced_found = 0;
  for (const Links& links : links_) {
    QUIRE_CHECK((links.state == State::kReferenced) == (links.num_references > 0),
                "references make a block referenced");
    num_referenced_found += links.state == State::kReferenced ? 1 : 0;
  }
  QUIRE_CHECK(num_free == num_free_ && num_cached == num_cached_ && num_referenced_found == num_referenced(),
              "free + cached + referenced = total");
}

}  // namespace quire
