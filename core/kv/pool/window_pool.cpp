#include "core/kv/pool/window_pool.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

WindowPool::WindowPool(std::int64_t num_parts, std::int64_t num_blocks)
    : parts_(num_parts),
      block_of_part_(static_cast<std::size_t>(num_parts), kNoBlock),
      part_of_block_(static_cast<std::size_t>(num_parts > 0 ? num_blocks : 0), kNoPart) {}

void WindowPool::assign(BlockId block) {
  QUIRE_CHECK(!has_part(block), "a block has one part");
  if (const BlockId leaving = next_to_leave(); leaving != kNoBlock) drop(leaving);
  const PartId part = parts_.allocate_one();
  QUIRE_CHECK(part != kNoPart, "a part is assigned where one is available");
  mutable_part_of(block) = part;
  block_of(part) = block;
}

BlockId WindowPool::next_to_leave() const {
  if (parts_.num_free() > 0) return kNoBlock;
  const PartId part = parts_.oldest_cached();
  return part == kNoPart ? kNoBlock : block_of_part_[static_cast<std::size_t>(part.value)];
}

void WindowPool::pin(BlockId block) {
  QUIRE_CHECK(has_part(block), "a block that is pinned has a part");
  parts_.retain(part_of(block));
}

bool WindowPool::unpin(BlockId block) {
  QUIRE_CHECK(has_part(block), "a block that is unpinned has a part");
  parts_.release(part_of(block), true);
  return parts_.is_cached(part_of(block));
}

void WindowPool::keep(BlockId block) {
  QUIRE_CHECK(parts_.num_references(part_of(block)) > 0, "a part is marked while it is pinned");
  parts_.raise(part_of(block), CacheClass::kRetained);
}

void WindowPool::drop(BlockId block) {
  const PartId part = part_of(block);
  if (part == kNoPart) return;
  parts_.drop(part);
  mutable_part_of(block) = kNoPart;
  block_of(part) = kNoBlock;
}

void WindowPool::move(BlockId from, BlockId to) {
  QUIRE_CHECK(has_part(from) && !has_part(to), "a block has one part");
  const PartId part = part_of(from);
  mutable_part_of(from) = kNoPart;
  mutable_part_of(to) = part;
  block_of(part) = to;
}

void WindowPool::promise(std::int64_t num_parts) {
  num_promised_ += num_parts;
  QUIRE_CHECK(num_available() >= 0, "only available parts are promised");
}

void WindowPool::fulfil(std::int64_t num_parts) {
  num_promised_ -= num_parts;
  QUIRE_CHECK(num_promised_ >= 0, "a promise is fulfilled once");
}

void WindowPool::check_integrity() const {
  parts_.check_integrity();
  std::int64_t num_with_block = 0;
  for (std::size_t i = 0; i < block_of_part_.size(); ++i) {
    const PartId part{static_cast<std::int32_t>(i)};
    QUIRE_CHECK(parts_.is_free(part) == (block_of_part_[i] == kNoBlock), "a part has a block unless it is free");
    if (block_of_part_[i] == kNoBlock) continue;
    ++num_with_block;
    QUIRE_CHECK(part_of(block_of_part_[i]) == part, "a part's block leads to it");
  }
  const auto num_leading = std::ranges::count_if(part_of_block_, [](PartId part) { return part != kNoPart; });
  QUIRE_CHECK(num_leading == num_with_block, "a block leads to its own part");
  QUIRE_CHECK(num_promised_ >= 0 && num_available() >= 0, "promised parts are available");
}

}  // namespace quire
