// KvCache: parts of blocks, which layers with a window keep.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/kv/kv_cache.h"
#include "kernels/check.h"

namespace quire {

namespace {

std::size_t place(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

// As match(), but only as far as all parts are there that the next token sees.
PrefixMatch KvCache::match_window(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit) const {
  PrefixMatch best{.node = table.node};
  PrefixMatch path = best;
  std::int64_t first_part = table.pinned_begin;  // since there all blocks of the path have parts
  std::int64_t position = std::int64_t{table.num_entered} * block_size_;
  for (; position + block_size_ <= limit; position += block_size_) {
    const PrefixNode next = index_.find(path.node, key_at(table, tokens, position / block_size_),
                                        tokens.subspan(place(position), place(block_size_)));
    if (next == kNoNode || index_.block(next) == kNoBlock) break;
    path.node = next;
    ++path.num_blocks;
    path.num_unreferenced += pool_.is_cached(index_.block(next)) ? 1 : 0;
    if (!parts_.has_part(index_.block(next))) first_part = position / block_size_ + 1;
    if (first_part <= first_kept(position + block_size_)) best = path;
  }
  const std::int64_t num_matched = std::int64_t{table.num_entered} + best.num_blocks;
  const std::int64_t first = std::max<std::int64_t>(first_kept(num_matched * block_size_), table.num_entered);
  PrefixNode node = best.node;
  for (std::int64_t i = num_matched; i-- > first; node = index_.parent(node))
    best.num_unpinned += parts_.is_cached(index_.block(node)) ? 1 : 0;
  if (position >= limit || best.node != path.node) return best;
  const auto left = std::min<std::int64_t>(limit - position, block_size_);
  const auto partial = index_.find_partial(best.node, tokens.subspan(place(position), place(left)));
  if (partial.node == kNoNode || !parts_.has_part(index_.block(partial.node))) return best;
  PrefixMatch with_partial = best;
  with_partial.partial_block = index_.block(partial.node);
  with_partial.num_partial_tokens = partial.num_tokens;
  // What is copied stays until then: it must fit beside the sequence.
  with_partial.num_unreferenced += pool_.is_cached(with_partial.partial_block) ? 1 : 0;
  with_partial.num_unpinned += parts_.is_cached(with_partial.partial_block) ? 1 : 0;
  return room_needed(table, with_partial, std::ssize(tokens)).fits(available()) ? with_partial : best;
}

KvRoom KvCache::room_needed(const BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens) const {
  KvRoom room{.blocks = blocks_needed(table, match, num_tokens)};
  if (has_window())
    room.parts = parts_to_promise(table.num_entered + match.num_blocks, num_tokens) + match.num_unpinned;
  return room;
}

KvRoom KvCache::most_room(std::int64_t num_tokens) const {
  const std::int64_t num_blocks = blocks_for(num_tokens);
  return {num_blocks + 1, has_window() ? std::min(num_blocks, parts_per_sequence()) + 1 : 0};
}

std::int64_t KvCache::tokens_with_parts(const BlockTable& table, std::int64_t num_computed) const {
  if (!has_window()) return std::numeric_limits<std::int64_t>::max();
  const std::size_t tail = place(num_computed / block_size_);
  const bool shared_tail = tail < table.blocks.size() && pool_.num_references(table.blocks[tail]) > 1;
  const std::int64_t num_parts = table.num_promised + parts_.num_available() - (shared_tail ? 1 : 0);
  return (table.pinned_end + num_parts) * block_size_;
}

// The blocks that a sequence continuing from num_matched blocks is promised, beside those that it keeps.
std::int64_t KvCache::parts_to_promise(std::int64_t num_matched, std::int64_t num_tokens) const {
  const std::int64_t num_kept = num_matched - first_kept(num_matched * block_size_);
  return std::max<std::int64_t>(0, std::min(blocks_for(num_tokens) - num_matched, parts_per_sequence() - num_kept));
}

// Of a table that has entered the match: what it sees there is pinned, what it needs to go on is promised, and what is
// to be copied stays while room is made.
void KvCache::begin_window(BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens) {
  pin_computed(table, std::int64_t{table.num_entered} * block_size_);
  keep_window(table, std::int64_t{table.num_entered} * block_size_);
  const std::int64_t num_promised = parts_to_promise(table.num_entered, num_tokens);
  parts_.promise(num_promised);
  table.num_promised += num_promised;
  if (match.partial_block == kNoBlock) return;
  pool_.retain(match.partial_block);
  parts_.pin(match.partial_block);
  parts_.keep(match.partial_block);
}

void KvCache::copy_partial_part(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& copies) {
  const BlockId own = table.blocks[place(table.num_entered)];
  give_parts(table, std::int64_t{table.num_entered} * block_size_ + match.num_partial_tokens);
  copies.emplace_back(parts_.part_of(match.partial_block), parts_.part_of(own));
  parts_.unpin(match.partial_block);
  release_block(match.partial_block, true);
}

void KvCache::pin_computed(BlockTable& table, std::int64_t num_computed) {
  const std::int64_t begin = std::max<std::int64_t>(first_kept(num_computed), table.pinned_end);
  if (table.pinned_begin == table.pinned_end) table.pinned_begin = static_cast<std::int32_t>(begin);
  table.pinned_end = static_cast<std::int32_t>(blocks_for(num_computed));
  for (std::int64_t i = begin; i < table.pinned_end; ++i)
    parts_.pin(table.blocks[place(i)]);
}

// For the block after those that the table has entered. False, and nothing changed, where its part is not there, or
// not available.
bool KvCache::pin_adopted(BlockTable& table, BlockId found) {
  if (!parts_.has_part(found)) return false;
  const bool has_own = table.num_entered < table.pinned_end;
  const bool takes_one = parts_.is_cached(found) && !has_own;
  if (takes_one && table.num_promised == 0 && parts_.num_available() == 0) return false;
  if (has_own) {
    parts_.unpin(table.blocks[place(table.num_entered)]);
  } else {
    ++table.pinned_end;
  }
  if (takes_one && table.num_promised > 0) {
    --table.num_promised;
    parts_.fulfil(1);
  }
  parts_.pin(found);
  return true;
}

bool KvCache::has_parts_to_grow(const BlockTable& table, std::int64_t num_tokens, bool shared_tail) const {
  const std::int64_t added = std::max<std::int64_t>(0, blocks_for(num_tokens) - table.pinned_end);
  const std::int64_t needed = added + (shared_tail ? 1 : 0) - table.num_promised;
  return needed <= 0 || needed <= parts_.num_available();
}

void KvCache::give_part(BlockTable& table, BlockId block) {
  if (table.num_promised > 0) {
    --table.num_promised;
    parts_.fulfil(1);
  }
  const BlockId leaving = parts_.next_to_leave();
  const bool is_offered = leaving != kNoBlock && parts_.is_kept(leaving) && !pool_.is_forgettable(leaving);
  if (listener_ != nullptr && is_offered) listener_->before_part_leaves(index_.node_of(leaving));
  parts_.assign(block);
}

// Of the table's last block; kNoPart where it had one.
PartId KvCache::hold_part(BlockTable& table) {
  const BlockId block = table.blocks.back();
  const auto index = static_cast<std::int32_t>(table.blocks.size()) - 1;
  if (table.pinned_begin == table.pinned_end) table.pinned_begin = index;
  table.pinned_end = index + 1;
  if (!parts_.has_part(block)) {
    give_part(table, block);
    return parts_.part_of(block);
  }
  parts_.pin(block);
  return kNoPart;
}

void KvCache::give_parts(BlockTable& table, std::int64_t num_tokens) {
  for (; table.pinned_end < blocks_for(num_tokens); ++table.pinned_end)
    give_part(table, table.blocks[place(table.pinned_end)]);
}

// A table's own block gives way to one of the same content, which it refers to by now.
void KvCache::hand_over_part(BlockId from, BlockId to) {
  const bool is_kept = parts_.is_kept(from);
  if (parts_.has_part(to)) {
    parts_.unpin(from);
    parts_.pin(to);
  } else {
    QUIRE_CHECK(pool_.num_references(from) == 1, "only its one owner fills a block");
    parts_.move(from, to);
  }
  if (is_kept) keep_part(to);
}

void KvCache::keep_part(BlockId block) {
  if (parts_.is_kept(block)) return;
  parts_.keep(block);
  const PrefixNode node = index_.node_of(block);
  if (listener_ != nullptr && node != kNoNode && parts_.is_kept(block)) listener_->after_entry(node);
}

void KvCache::keep_window(BlockTable& table, std::int64_t position) {
  if (!has_window()) return;
  const std::int64_t end = std::min<std::int64_t>(blocks_for(position), table.pinned_end);
  for (std::int64_t i = std::max<std::int64_t>(first_kept(position), table.pinned_begin); i < end; ++i)
    keep_part(table.blocks[place(i)]);
}

// What becomes available stays the table's, as far as it is going to need it again.
void KvCache::unpin_behind(BlockTable& table, std::int64_t num_computed) {
  const std::int64_t end = std::min<std::int64_t>(first_kept(num_computed), table.pinned_end);
  std::int64_t num_freed = 0;
  for (; table.pinned_begin < end; ++table.pinned_begin)
    num_freed += parts_.unpin(table.blocks[place(table.pinned_begin)]) ? 1 : 0;
  const std::int64_t num_held = table.pinned_end - table.pinned_begin + table.num_promised;
  const std::int64_t num_again = std::clamp<std::int64_t>(parts_per_sequence() - num_held, 0, num_freed);
  parts_.promise(num_again);
  table.num_promised += num_again;
}

// The last ones are needed if the conversation continues: the table was the last to use them, and they are kept.
void KvCache::unpin_all(BlockTable& table) {
  for (; table.pinned_begin < table.pinned_end; ++table.pinned_begin) {
    keep_part(table.blocks[place(table.pinned_begin)]);
    parts_.unpin(table.blocks[place(table.pinned_begin)]);
  }
  table.pinned_begin = table.pinned_end = 0;
  parts_.fulfil(std::exchange(table.num_promised, 0));
}

void KvCache::check_parts() const {
  parts_.check_integrity();
  for (std::int64_t i = 0; i < pool_.num_blocks(); ++i) {
    const BlockId block{static_cast<std::int32_t>(i)};
    if (!parts_.has_part(block)) continue;
    QUIRE_CHECK(pool_.num_references(block) > 0 || pool_.is_cached(block), "a free block has no part");
    QUIRE_CHECK(pool_.num_references(block) > 0 || parts_.is_cached(block), "a pinned part's block is referenced");
  }
}

}  // namespace quire
