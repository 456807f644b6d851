#include "core/kv/groups/window_group.h"

#include <limits>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {

std::size_t place_of(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

WindowGroup::WindowGroup(KvShared& shared, FullGroup& full, const KvWindow& window)
    : KvGroup(shared),
      full_(full),
      window_tokens_(window.num_tokens),
      parts_(window.num_parts, shared.blocks.num_blocks()) {
  const std::int64_t least = WindowPool::least_parts(window.num_tokens, shared.block_size);
  QUIRE_CHECK(window.num_parts == 0 ||
                  (window.num_tokens > 0 && window.num_parts >= std::min(shared.blocks.num_blocks(), least)),
              "there are parts enough for a sequence alone");
}

bool WindowGroup::has(PrefixNode node) const {
  const BlockId block = shared_.index.block(node);
  return block != kNoBlock && parts_.has_part(block);
}

bool WindowGroup::count(const BlockTable& table, PrefixMatch& match) const {
  const std::int64_t num_matched = std::int64_t{table.num_entered} + match.num_blocks;
  PrefixNode node = match.node;
  for (std::int64_t i = num_matched; i-- > std::max<std::int64_t>(first_needed(num_matched), table.num_entered);
       node = shared_.index.parent(node))
    match.num_unpinned += parts_.is_cached(shared_.index.block(node)) ? 1 : 0;
  if (match.partial_block == kNoBlock) return false;
  match.num_unreferenced += shared_.blocks.is_cached(match.partial_block) ? 1 : 0;
  match.num_unpinned += parts_.is_cached(match.partial_block) ? 1 : 0;
  return true;
}

std::int64_t WindowGroup::parts_needed(const BlockTable& table, const PrefixMatch& match,
                                       std::int64_t num_tokens) const {
  if (parts_.num_parts() == 0) return 0;
  return parts_to_promise(table.num_entered + match.num_blocks, num_tokens) + match.num_unpinned;
}

std::int64_t WindowGroup::most_parts(std::int64_t num_tokens) const {
  if (parts_.num_parts() == 0) return 0;
  return std::min(shared_.blocks_for(num_tokens), parts_per_sequence()) + 1;
}

std::int64_t WindowGroup::tokens_with_parts(const BlockTable& table, std::int64_t num_computed) const {
  if (parts_.num_parts() == 0) return std::numeric_limits<std::int64_t>::max();
  const std::size_t tail = place_of(num_computed / shared_.block_size);
  const bool shared_tail = tail < table.blocks.size() && shared_.blocks.num_references(table.blocks[tail]) > 1;
  const std::int64_t num_parts = table.num_promised + parts_.num_available() - (shared_tail ? 1 : 0);
  return (table.pinned_end + num_parts) * shared_.block_size;
}

// The parts that a sequence continuing from num_matched blocks is promised, beside those that it keeps.
std::int64_t WindowGroup::parts_to_promise(std::int64_t num_matched, std::int64_t num_tokens) const {
  const std::int64_t num_kept = num_matched - first_needed(num_matched);
  return std::max<std::int64_t>(
      0, std::min(shared_.blocks_for(num_tokens) - num_matched, parts_per_sequence() - num_kept));
}

// Called after the table has entered the match: pins the parts in its window, promises the parts that it needs to
// continue, and keeps parts to be copied while room is made.
void WindowGroup::admit(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& /*copies*/,
                        std::int64_t num_tokens) {
  pin_computed(table, std::int64_t{table.num_entered} * shared_.block_size);
  keep(table, std::int64_t{table.num_entered} * shared_.block_size);
  const std::int64_t num_promised = parts_to_promise(table.num_entered, num_tokens);
  parts_.promise(num_promised);
  table.num_promised += num_promised;
  if (match.partial_block == kNoBlock) return;
  shared_.blocks.retain(match.partial_block);
  parts_.pin(match.partial_block);
  parts_.keep(match.partial_block);
}

void WindowGroup::copy_inside(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& copies) {
  const BlockId own = table.blocks[place_of(table.num_entered)];
  grow(table, std::int64_t{table.num_entered} * shared_.block_size + match.num_partial_tokens);
  copies.emplace_back(parts_.part_of(match.partial_block), parts_.part_of(own));
  parts_.unpin(match.partial_block);
  full_.drop_reference(match.partial_block, true);
}

void WindowGroup::pin_computed(BlockTable& table, std::int64_t num_computed) {
  const std::int64_t begin = std::max<std::int64_t>(first_kept(num_computed), table.pinned_end);
  if (table.pinned_begin == table.pinned_end) table.pinned_begin = static_cast<std::int32_t>(begin);
  table.pinned_end = static_cast<std::int32_t>(shared_.blocks_for(num_computed));
  for (std::int64_t i = begin; i < table.pinned_end; ++i)
    parts_.pin(table.blocks[place_of(i)]);
}

bool WindowGroup::adopt(BlockTable& table, BlockId found) {
  if (!parts_.has_part(found)) return false;
  const bool has_own = table.num_entered < table.pinned_end;
  const bool takes_one = parts_.is_cached(found) && !has_own;
  if (takes_one && table.num_promised == 0 && parts_.num_available() == 0) return false;
  if (has_own) {
    parts_.unpin(table.blocks[place_of(table.num_entered)]);
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

bool WindowGroup::make_room(const BlockTable& table, std::int64_t num_tokens, bool copies_tail) {
  const std::int64_t added = std::max<std::int64_t>(0, shared_.blocks_for(num_tokens) - table.pinned_end);
  const std::int64_t needed = added + (copies_tail ? 1 : 0) - table.num_promised;
  return needed <= 0 || needed <= parts_.num_available();
}

void WindowGroup::give_part(BlockTable& table, BlockId block) {
  if (table.num_promised > 0) {
    --table.num_promised;
    parts_.fulfil(1);
  }
  const BlockId leaving = parts_.next_to_leave();
  const bool is_offered = leaving != kNoBlock && parts_.is_kept(leaving) && !shared_.blocks.is_forgettable(leaving);
  if (shared_.listener != nullptr && is_offered) shared_.listener->before_loss(shared_.index.node_of(leaving));
  parts_.assign(block);
}

void WindowGroup::grow(BlockTable& table, std::int64_t num_tokens) {
  for (; table.pinned_end < shared_.blocks_for(num_tokens); ++table.pinned_end)
    give_part(table, table.blocks[place_of(table.pinned_end)]);
}

void WindowGroup::copy_tail(BlockTable& table, BlockId from, BlockId to, std::vector<BlockCopy>& copies) {
  give_part(table, to);
  copies.emplace_back(parts_.part_of(from), parts_.part_of(to));
  parts_.unpin(from);
}

void WindowGroup::hold(BlockTable& table, KvExtras& out) {
  const BlockId block = table.blocks.back();
  const auto index = static_cast<std::int32_t>(table.blocks.size()) - 1;
  if (table.pinned_begin == table.pinned_end) table.pinned_begin = index;
  table.pinned_end = index + 1;
  if (parts_.has_part(block)) return parts_.pin(block);
  give_part(table, block);
  out.part = parts_.part_of(block);
}

void WindowGroup::replace(BlockId own, BlockId found) {
  const bool is_kept = parts_.is_kept(own);
  if (parts_.has_part(found)) {
    parts_.unpin(own);
    parts_.pin(found);
  } else {
    QUIRE_CHECK(shared_.blocks.num_references(own) == 1, "only its one owner fills a block");
    parts_.move(own, found);
  }
  if (is_kept) keep_part(found);
}

void WindowGroup::keep_part(BlockId block) {
  if (parts_.is_kept(block)) return;
  parts_.keep(block);
  const PrefixNode node = shared_.index.node_of(block);
  if (shared_.listener != nullptr && node != kNoNode && parts_.is_kept(block)) shared_.listener->after_entry(node);
}

void WindowGroup::keep(BlockTable& table, std::int64_t position) {
  if (parts_.num_parts() == 0) return;
  const std::int64_t end = std::min<std::int64_t>(shared_.blocks_for(position), table.pinned_end);
  for (std::int64_t i = std::max<std::int64_t>(first_kept(position), table.pinned_begin); i < end; ++i)
    keep_part(table.blocks[place_of(i)]);
}

// Freed parts stay promised to the table, up to the number that it will need again.
void WindowGroup::let_go(BlockTable& table, std::int64_t num_computed) {
  const std::int64_t end = std::min<std::int64_t>(first_kept(num_computed), table.pinned_end);
  std::int64_t num_freed = 0;
  for (; table.pinned_begin < end; ++table.pinned_begin)
    num_freed += parts_.unpin(table.blocks[place_of(table.pinned_begin)]) ? 1 : 0;
  const std::int64_t num_held = table.pinned_end - table.pinned_begin + table.num_promised;
  const std::int64_t num_again = std::clamp<std::int64_t>(parts_per_sequence() - num_held, 0, num_freed);
  parts_.promise(num_again);
  table.num_promised += num_again;
}

bool WindowGroup::can_fork(const BlockTable& table, std::int64_t num_shared, bool /*is_all*/) const {
  return first_kept(num_shared) >= table.pinned_begin;
}

void WindowGroup::fork(const BlockTable& /*from*/, BlockTable& to, std::int64_t num_computed) {
  pin_computed(to, num_computed);
}

// Marks the window's parts, which this table was the last to use: the conversation may continue.
void WindowGroup::release(BlockTable& table, const NodePlace& /*end*/, WhenEvicted /*when_evicted*/) {
  for (; table.pinned_begin < table.pinned_end; ++table.pinned_begin) {
    keep_part(table.blocks[place_of(table.pinned_begin)]);
    parts_.unpin(table.blocks[place_of(table.pinned_begin)]);
  }
  table.pinned_begin = table.pinned_end = 0;
  parts_.fulfil(std::exchange(table.num_promised, 0));
}

void WindowGroup::check_integrity() const {
  parts_.check_integrity();
  const BlockPool& pool = shared_.blocks;
  for (std::int64_t i = 0; i < pool.num_blocks(); ++i) {
    const BlockId block{static_cast<std::int32_t>(i)};
    if (!parts_.has_part(block)) continue;
    QUIRE_CHECK(!pool.is_free(block), "a free block has no part");
    QUIRE_CHECK(pool.num_references(block) > 0 || parts_.is_cached(block), "a pinned part's block is referenced");
  }
}

}  // namespace quire
