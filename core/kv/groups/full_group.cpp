#include "core/kv/groups/full_group.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/check.h"

namespace quire {

bool FullGroup::free_blocks(std::int64_t num_blocks) {
  if (num_blocks > shared_.blocks.num_available()) return false;
  while (shared_.blocks.num_free() < num_blocks)
    evict_oldest();
  return true;
}

void FullGroup::evict_oldest() {
  BlockPool& pool = shared_.blocks;
  const BlockId block = pool.oldest_cached();
  const PrefixNode node = shared_.index.node_of(block);
  if (shared_.listener != nullptr) {
    shared_.listener->before_eviction(node,
                                      pool.is_forgettable(block) ? WhenEvicted::kForgotten : WhenEvicted::kOffered);
  }
  for (KvGroup* group : beside_)
    group->forget(block);
  shared_.index.clear_block(node);
  shared_.index.forget_unused(node);
  pool.drop(block);
}

void FullGroup::drop_reference(BlockId block, bool keep) {
  shared_.blocks.release(block, keep);
  if (keep || shared_.blocks.num_references(block) > 0) return;
  for (KvGroup* group : beside_)
    group->forget(block);
}

std::int64_t FullGroup::blocks_needed(const BlockTable& table, const PrefixMatch& match,
                                      std::int64_t num_tokens) const {
  const std::int64_t held = std::ssize(table.blocks) + match.num_blocks;
  return std::max<std::int64_t>(0, shared_.blocks_for(num_tokens) - held) + match.num_unreferenced;
}

void FullGroup::admit(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& /*copies*/,
                      std::int64_t /*num_tokens*/) {
  const std::size_t first = table.blocks.size();
  table.blocks.resize(first + static_cast<std::size_t>(match.num_blocks));
  PrefixNode node = match.node;
  for (std::size_t i = table.blocks.size(); i-- > first; node = shared_.index.parent(node)) {
    table.blocks[i] = shared_.index.block(node);
    shared_.blocks.retain(table.blocks[i]);
  }
  table.num_entered += match.num_blocks;
  table.node = match.node;
  if (match.partial_block != kNoBlock) shared_.blocks.touch(match.partial_block);
}

bool FullGroup::make_room(const BlockTable& table, std::int64_t num_tokens, bool copies_tail) {
  const std::int64_t added = std::max<std::int64_t>(0, shared_.blocks_for(num_tokens) - std::ssize(table.blocks));
  return free_blocks(added + (copies_tail ? 1 : 0));
}

void FullGroup::grow(BlockTable& table, std::int64_t num_tokens) {
  const std::int64_t num_blocks = shared_.blocks_for(num_tokens) - std::ssize(table.blocks);
  if (num_blocks <= 0) return;
  QUIRE_CHECK(free_blocks(num_blocks), "room was counted before");
  const std::size_t first = table.blocks.size();
  table.blocks.resize(first + static_cast<std::size_t>(num_blocks));
  QUIRE_CHECK(shared_.blocks.allocate(std::span(table.blocks).subspan(first)), "room was made before");
}

void FullGroup::copy_tail(BlockTable& /*table*/, BlockId from, BlockId to, std::vector<BlockCopy>& copies) {
  copies.emplace_back(from, to);
  drop_reference(from, shared_.index.contains(from));
}

bool FullGroup::adopt(BlockTable& table, BlockId found) {
  shared_.blocks.retain(found);
  if (std::cmp_equal(table.blocks.size(), table.num_entered)) {
    table.blocks.push_back(found);  // a text that a grammar forced has no blocks of its own yet
    return true;
  }
  BlockId& own = table.blocks[static_cast<std::size_t>(table.num_entered)];
  drop_reference(own, shared_.index.contains(own));
  own = found;
  return true;
}

void FullGroup::fork(const BlockTable& from, BlockTable& to, std::int64_t num_computed) {
  to.blocks.assign(from.blocks.begin(), from.blocks.begin() + shared_.blocks_for(num_computed));
  for (const BlockId block : to.blocks)
    shared_.blocks.retain(block);
}

void FullGroup::release(BlockTable& table, const NodePlace& /*end*/, WhenEvicted when_evicted) {
  for (std::size_t i = table.blocks.size(); i-- > 0;) {
    const BlockId block = table.blocks[i];
    shared_.blocks.raise(block, table.cache_class);
    shared_.blocks.set_forgettable(block, when_evicted == WhenEvicted::kForgotten);
    drop_reference(block, shared_.index.contains(block));
  }
  table.blocks.clear();
}

void FullGroup::check_integrity() const {
  const BlockPool& pool = shared_.blocks;
  pool.check_integrity();
  for (std::int64_t i = 0; i < pool.num_blocks(); ++i) {
    const BlockId block{static_cast<std::int32_t>(i)};
    if (pool.is_cached(block)) QUIRE_CHECK(shared_.index.contains(block), "a cached block can be found");
    if (pool.is_free(block)) QUIRE_CHECK(!shared_.index.contains(block), "a free block cannot be found");
  }
}

}  // namespace quire
