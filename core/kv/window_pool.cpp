#include "core/kv/window_pool.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

WindowPool::WindowPool(std::int64_t num_parts, std::int64_t num_blocks)
    : links_(static_cast<std::size_t>(num_parts)),
      part_of_block_(static_cast<std::size_t>(num_parts > 0 ? num_blocks : 0), kNoPart) {
  for (std::int64_t i = num_parts; i-- > 0;)
    free(PartId{static_cast<std::int32_t>(i)});
}

void WindowPool::assign(BlockId block) {
  QUIRE_CHECK(!has_part(block), "a block has one part");
  if (free_head_ == kNoPart) {
    QUIRE_CHECK(num_cached() > 0, "a part is assigned where one is available");
    drop(next_to_leave());
  }
  const PartId part = free_head_;
  free_head_ = links_[index(part)].next;
  --num_free_;
  links_[index(part)] = {.block = block, .num_pins = 1};
  slot_of(block) = part;
  peak_pinned_ = std::max(peak_pinned_, num_pinned());
}

BlockId WindowPool::next_to_leave() const {
  if (free_head_ != kNoPart || num_cached() == 0) return kNoBlock;
  const List& next = lists_[kPlain].length > 0 ? lists_[kPlain] : lists_[kKept];
  return links_[index(next.head)].block;
}

void WindowPool::pin(BlockId block) {
  const PartId part = part_of(block);
  QUIRE_CHECK(part != kNoPart, "what is pinned has a part");
  if (links_[index(part)].num_pins++ > 0) return;
  unlink(part);
  peak_pinned_ = std::max(peak_pinned_, num_pinned());
}

bool WindowPool::unpin(BlockId block) {
  const PartId part = part_of(block);
  QUIRE_CHECK(part != kNoPart && links_[index(part)].num_pins > 0, "a part is unpinned once per pin");
  if (--links_[index(part)].num_pins > 0) return false;
  link(part);
  return true;
}

void WindowPool::keep(BlockId block) {
  Links& links = links_[index(part_of(block))];
  QUIRE_CHECK(links.num_pins > 0, "a part is marked while it is pinned");
  links.is_kept = true;
}

void WindowPool::drop(BlockId block) {
  const PartId part = part_of(block);
  if (part == kNoPart) return;
  QUIRE_CHECK(links_[index(part)].num_pins == 0, "a pinned part stays");
  unlink(part);
  slot_of(block) = kNoPart;
  free(part);
}

void WindowPool::move(BlockId from, BlockId to) {
  QUIRE_CHECK(has_part(from) && !has_part(to), "a block has one part");
  const PartId part = part_of(from);
  slot_of(from) = kNoPart;
  slot_of(to) = part;
  links_[index(part)].block = to;
}

void WindowPool::promise(std::int64_t num_parts) {
  num_promised_ += num_parts;
  QUIRE_CHECK(num_available() >= 0, "only available parts are promised");
}

void WindowPool::fulfil(std::int64_t num_parts) {
  num_promised_ -= num_parts;
  QUIRE_CHECK(num_promised_ >= 0, "a promise is fulfilled once");
}

void WindowPool::free(PartId part) {
  links_[index(part)] = {.next = free_head_};
  free_head_ = part;
  ++num_free_;
}

void WindowPool::link(PartId part) {
  Links& links = links_[index(part)];
  List& list = list_of(part);
  links.previous = list.tail;
  links.next = kNoPart;
  (list.tail == kNoPart ? list.head : links_[index(list.tail)].next) = part;
  list.tail = part;
  ++list.length;
}

void WindowPool::unlink(PartId part) {
  const Links& links = links_[index(part)];
  List& list = list_of(part);
  (links.previous == kNoPart ? list.head : links_[index(links.previous)].next) = links.next;
  (links.next == kNoPart ? list.tail : links_[index(links.next)].previous) = links.previous;
  --list.length;
}

std::int64_t WindowPool::check_list(std::size_t list) const {
  std::int64_t length = 0;
  PartId previous = kNoPart;
  for (PartId part = lists_[list].head; part != kNoPart; part = links_[index(part)].next) {
    const Links& links = links_[index(part)];
    QUIRE_CHECK(links.block != kNoBlock && links.num_pins == 0 && links.previous == previous,
                "cached parts have blocks and are linked both ways");
    QUIRE_CHECK(links.is_kept == (list == kKept), "a part is in the list it belongs to");
    QUIRE_CHECK(++length <= num_parts(), "a list of cached parts ends");
    previous = part;
  }
  QUIRE_CHECK(previous == lists_[list].tail && length == lists_[list].length, "a list ends at its tail");
  return length;
}

void WindowPool::check_integrity() const {
  std::int64_t num_free = 0;
  for (PartId part = free_head_; part != kNoPart; part = links_[index(part)].next) {
    QUIRE_CHECK(links_[index(part)].block == kNoBlock && ++num_free <= num_parts(), "the free list holds free parts");
  }
  const std::int64_t num_cached = check_list(kPlain) + check_list(kKept);
  std::int64_t num_pinned = 0;
  std::int64_t num_with_block = 0;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Links& links = links_[i];
    num_pinned += links.num_pins > 0 ? 1 : 0;
    if (links.block == kNoBlock) continue;
    ++num_with_block;
    QUIRE_CHECK(part_of(links.block) == PartId{static_cast<std::int32_t>(i)}, "a part's block leads to it");
  }
  const auto num_leading = std::ranges::count_if(part_of_block_, [](PartId part) { return part != kNoPart; });
  QUIRE_CHECK(num_leading == num_with_block, "a block leads to its own part");
  QUIRE_CHECK(num_free == num_free_ && num_free + num_cached + num_pinned == num_parts(),
              "free + pinned + cached = total");
  QUIRE_CHECK(num_promised_ >= 0 && num_available() >= 0, "promised parts are available");
}

}  // namespace quire
