#include "core/kv/block_pool.h"

#include "kernels/check.h"

namespace quire {

namespace {

// Of the pool. Found on Mooncake's conversations: a fifth beats plain LRU at every size of pool, two fifths do not.
constexpr double kMaxReturningPart = 0.2;

}  // namespace

BlockPool::BlockPool(std::int64_t num_blocks) : links_(static_cast<std::size_t>(num_blocks)) {
  most_.fill(num_blocks);
  most_[static_cast<std::size_t>(CacheClass::kReturning)] =
      static_cast<std::int64_t>(kMaxReturningPart * static_cast<double>(num_blocks));
  for (std::int64_t i = num_blocks - 1; i >= 0; --i)
    push_free(BlockId{static_cast<std::int32_t>(i)});
}

void BlockPool::set_retained_share(double share) {
  most_[static_cast<std::size_t>(CacheClass::kRetained)] =
      static_cast<std::int64_t>(share * static_cast<double>(num_blocks()));
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
  links.is_forgettable = false;
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
  Links& links = links_[index(block)];
  List& list = list_of(block);
  links.state = State::kCached;
  links.previous = list.tail;
  links.next = kNoBlock;
  (list.tail == kNoBlock ? list.head : links_[index(list.tail)].next) = block;
  list.tail = block;
  ++list.length;
  if (list.length > most_[static_cast<std::size_t>(links.cache_class)]) {
    const BlockId oldest = list.head;
    unlink_cached(oldest);
    links_[index(oldest)].cache_class = CacheClass::kPlain;
    push_cached(oldest);
  }
}

void BlockPool::unlink_cached(BlockId block) {
  const Links& links = links_[index(block)];
  List& list = list_of(block);
  (links.previous == kNoBlock ? list.head : links_[index(links.previous)].next) = links.next;
  (links.next == kNoBlock ? list.tail : links_[index(links.next)].previous) = links.previous;
  --list.length;
}

void BlockPool::check_integrity() const {
  std::int64_t num_free = 0;
  for (BlockId block = free_head_; block != kNoBlock; block = links_[index(block)].next) {
    QUIRE_CHECK(links_[index(block)].state == State::kFree, "the free list holds free blocks");
    QUIRE_CHECK(++num_free <= num_blocks(), "the free list ends");
  }
  for (const List& list : lists_) {
    std::int64_t length = 0;
    BlockId previous = kNoBlock;
    for (BlockId block = list.head; block != kNoBlock; block = links_[index(block)].next) {
      const Links& links = links_[index(block)];
      QUIRE_CHECK(is_cached(block) && links.previous == previous, "a cached list is linked both ways");
      QUIRE_CHECK(&list == &lists_[static_cast<std::size_t>(links.cache_class)], "a block is in its class's list");
      QUIRE_CHECK(++length <= num_blocks(), "a cached list ends");
      previous = block;
    }
    QUIRE_CHECK(previous == list.tail && length == list.length, "a cached list ends at its tail");
  }
  std::int64_t num_referenced_found = 0;
  for (const Links& links : links_) {
    QUIRE_CHECK((links.state == State::kReferenced) == (links.num_references > 0),
                "references make a block referenced");
    num_referenced_found += links.state == State::kReferenced ? 1 : 0;
  }
  QUIRE_CHECK(num_free == num_free_ && num_referenced_found == num_referenced(), "free + cached + referenced = total");
}

}  // namespace quire
