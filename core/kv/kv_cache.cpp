#include "core/kv/kv_cache.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {
std::size_t as_size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}
}  // namespace

std::vector<std::int64_t> KvCache::snapshot_borders(std::int64_t num_prompt_tokens,
                                                    std::span<const std::int64_t> message_ends) const {
  constexpr std::int64_t kBeforeEnd = 32;
  constexpr std::int64_t kApart = 64;  // fewest tokens that a snapshot must save
  if (beside_.empty() || num_prompt_tokens < 2 * kBeforeEnd) return {};
  const auto rounded = [&](std::int64_t position) { return position / block_size() * block_size(); };
  std::vector<std::int64_t> borders{rounded(num_prompt_tokens - kBeforeEnd)};
  const auto add = [&](std::int64_t end) {
    if (rounded(end) >= kApart && rounded(end) + kApart <= borders.front())
      borders.insert(borders.begin(), rounded(end));
  };
  const auto before_last = std::find_if(message_ends.rbegin(), message_ends.rend(),
                                        [&](std::int64_t end) { return rounded(end) + kApart <= borders.front(); });
  if (before_last != message_ends.rend()) add(*before_last);
  if (!message_ends.empty()) add(message_ends.front());
  return borders;
}

KvCache::KvCache(std::int64_t num_blocks, std::int32_t block_size, bool enable_prefix_caching, BlockHash hash,
                 std::string identity, std::int64_t num_states, const KvWindow& window)
    : prefix_caching_(enable_prefix_caching),
      shared_(num_blocks, block_size, hash, std::move(identity)),
      full_(shared_, beside_),
      window_(shared_, full_, window),
      states_(shared_, num_states) {
  if (window.num_parts > 0) beside_.push_back(&window_);
  if (num_states > 0) {
    beside_.push_back(&states_);
    groups_.push_back(&states_);
  }
  groups_.push_back(&full_);
  if (window.num_parts > 0) groups_.push_back(&window_);
  skips_tokens_ = std::ranges::all_of(groups_, &KvGroup::skips_tokens);
}

void KvCache::open(BlockTable& table, const std::string& salt) {
  table.root = table.node = shared_.index.acquire_root(salt);
  table.is_open = true;
}

void KvCache::open(BlockTable& table, const BlockTable& beside) {
  open(table, shared_.index.salt_of(beside.root));
}

void KvCache::close(BlockTable& table) {
  if (!table.is_open) return;
  if (table.is_restoring) shared_.listener->before_close(table);
  QUIRE_CHECK(table.blocks.empty(), "blocks are released before their table is closed");
  shared_.index.release_root(table.root);
  table.keys.clear();
  table.is_looked_up = table.is_fetched = false;
  table.is_open = false;
}

const ChainKey& KvCache::key_at(BlockTable& table, std::span<const TokenId> tokens, std::int64_t index) const {
  for (std::int64_t next = std::ssize(table.keys); next <= index; ++next) {
    const ChainKey& parent = next == 0 ? shared_.index.key_of(table.root) : table.keys.back();
    table.keys.push_back(
        shared_.index.key_after(parent, tokens.subspan(as_size(next * block_size()), as_size(block_size()))));
  }
  return table.keys[as_size(index)];
}

void KvCache::reserve(BlockTable& table, std::int64_t num_tokens) const {
  table.blocks.reserve(as_size(blocks_for(num_tokens)));
  if (prefix_caching_) table.keys.reserve(as_size(blocks_for(num_tokens)));
}

PrefixNode KvCache::pooled_child(BlockTable& table, PrefixNode node, std::span<const TokenId> tokens,
                                 std::int64_t position) const {
  const PrefixNode next = shared_.index.find(node, key_at(table, tokens, position / block_size()),
                                             tokens.subspan(as_size(position), as_size(block_size())));
  return next != kNoNode && full_.has(next) ? next : kNoNode;
}

// The longest path of blocks after which all groups can continue, or a place inside a block that is further on: at the
// path's end, or in a full block with a snapshot that was made while it was filled.
PrefixMatch KvCache::match(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit) const {
  PrefixMatch best{.node = table.node};
  if (!prefix_caching_) return best;
  PrefixMatch path = best;
  std::optional<PrefixMatch> best_inside;
  KvPath whole(beside_, table.num_entered);
  std::int64_t position = std::int64_t{table.num_entered} * block_size();
  for (; position + block_size() <= limit; position += block_size()) {
    const PrefixNode next = pooled_child(table, path.node, tokens, position);
    if (next == kNoNode) break;
    const std::int32_t snapshot_tokens = shared_.index.snapshot_tokens(next);
    if (snapshot_tokens > 0 && snapshot_tokens < block_size()) {
      if (auto found = inside(path, whole, {next, snapshot_tokens})) best_inside = found;
    }
    path.node = next;
    ++path.num_blocks;
    path.num_unreferenced += pool().is_cached(shared_.index.block(next)) ? 1 : 0;
    whole.add(next);
    if (!whole.goes_on()) continue;
    best = path;
    best.state = shared_.index.snapshot(next);
    best_inside.reset();
  }
  if (position < limit) {
    const auto left = std::min<std::int64_t>(limit - position, block_size());
    const auto partial = find_inside(path.node, tokens.subspan(as_size(position), as_size(left)));
    if (auto found = inside(path, whole, partial)) best_inside = found;
  }
  return best_of(table, best, best_inside, std::ssize(tokens));
}

PrefixIndex::Partial KvCache::find_inside(PrefixNode parent, std::span<const TokenId> tokens) const {
  for (const KvGroup* group : beside_) {
    if (const auto found = group->find_inside(parent, tokens)) return *found;
  }
  return shared_.index.find_partial(parent, tokens);
}

// The path and the first tokens of the next block, if all groups can continue there.
std::optional<PrefixMatch> KvCache::inside(const PrefixMatch& path, const KvPath& whole,
                                           const PrefixIndex::Partial& partial) const {
  if (partial.node == kNoNode) return {};
  for (std::size_t i = 0; i < beside_.size(); ++i) {
    if (!beside_[i]->shows_inside({partial.node, partial.num_tokens}, whole.goes_on(i))) return {};
  }
  PrefixMatch found = path;
  found.partial_block = shared_.index.block(partial.node);
  found.num_partial_tokens = partial.num_tokens;
  found.state = shared_.index.snapshot(partial.node);
  return found;
}

PrefixMatch KvCache::best_of(const BlockTable& table, PrefixMatch whole, std::optional<PrefixMatch> inside,
                             std::int64_t num_tokens) const {
  bool needs_room = false;
  for (const KvGroup* group : beside_) {
    group->count(table, whole);
    needs_room = (inside && group->count(table, *inside)) || needs_room;
  }
  if (!inside || (needs_room && !room_needed(table, *inside, num_tokens).fits(available()))) return whole;
  return *inside;
}

bool KvCache::can_admit() const {
  return std::ranges::all_of(groups_, &KvGroup::can_admit);
}

bool KvCache::can_fork(const BlockTable& table, std::int64_t num_shared, std::int64_t num_computed) const {
  return std::ranges::all_of(
      groups_, [&](const KvGroup* group) { return group->can_fork(table, num_shared, num_shared == num_computed); });
}

bool KvCache::admit(BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens,
                    std::vector<BlockCopy>& copies) {
  QUIRE_CHECK(std::cmp_equal(table.blocks.size(), table.num_entered), "a table is admitted at its last entered block");
  if (!room_needed(table, match, num_tokens).fits(available()) || !can_admit()) return false;
  for (KvGroup* group : groups_)
    group->admit(table, match, copies, num_tokens);
  const std::size_t partial_position = table.blocks.size();
  full_.grow(table, num_tokens);
  if (match.num_partial_tokens > 0 && match.partial_block != table.blocks[partial_position]) {
    copies.emplace_back(match.partial_block, table.blocks[partial_position]);
    for (KvGroup* group : groups_)
      group->copy_inside(table, match, copies);
  }
  return true;
}

bool KvCache::grow(BlockTable& table, std::int64_t num_computed, std::int64_t num_tokens,
                   std::vector<BlockCopy>& copies) {
  const std::size_t tail = as_size(num_computed / block_size());
  const bool shared_tail = tail < table.blocks.size() && pool().num_references(table.blocks[tail]) > 1;
  for (KvGroup* group : std::views::reverse(groups_)) {
    const auto has_room = [&] { return group->make_room(table, num_tokens, shared_tail); };
    if (!has_room() && !(shared_.listener != nullptr && shared_.listener->give_way() && has_room())) return false;
  }
  if (shared_tail) {
    const BlockId copy = shared_.blocks.allocate_one();
    for (KvGroup* group : groups_)
      group->copy_tail(table, table.blocks[tail], copy, copies);
    table.blocks[tail] = copy;
  }
  for (KvGroup* group : groups_)
    group->grow(table, num_tokens);
  return true;
}

std::int64_t KvCache::adopt(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed,
                            std::int64_t limit) {
  std::int64_t position = num_computed;
  if (!prefix_caching_ || !skips_tokens_ || position != std::int64_t{table.num_entered} * block_size()) return 0;
  for (; position + block_size() <= limit; position += block_size()) {
    const PrefixNode next = pooled_child(table, table.node, tokens, position);
    if (next == kNoNode) break;
    const BlockId found = shared_.index.block(next);
    if (!std::ranges::all_of(std::views::reverse(groups_), [&](KvGroup* group) { return group->adopt(table, found); }))
      break;
    table.node = next;
    ++table.num_entered;
    for (KvGroup* group : groups_)
      group->let_go(table, position + block_size());
  }
  return position - num_computed;
}

void KvCache::commit(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed) {
  while (prefix_caching_ && (std::int64_t{table.num_entered} + 1) * block_size() <= num_computed) {
    const std::int64_t position = std::int64_t{table.num_entered} * block_size();
    enter_full(table, key_at(table, tokens, table.num_entered),
               tokens.subspan(as_size(position), as_size(block_size())));
  }
  for (KvGroup* group : groups_)
    group->let_go(table, num_computed);
  if (!skips_tokens_ && prefix_caching_ && num_computed - table.num_tokens_at_snapshot >= snapshot_interval_)
    keep_snapshot(table, tokens, num_computed);
}

// If the tree already holds this content, the table takes that block and frees its own: batch invariance makes both
// equal, and one path per content keeps every entered block reachable.
void KvCache::enter_full(BlockTable& table, const ChainKey& key, std::span<const TokenId> content) {
  PrefixIndex& index = shared_.index;
  BlockId& own = table.blocks[as_size(table.num_entered)];
  const bool sole_owner = pool().num_references(own) == 1;
  StateGroup::Snapshot snapshot;
  if (index.contains(own) && sole_owner) {
    snapshot = states_.take_off(index.node_of(own));
    leave_tree(own);
  }
  PrefixNode node = index.find(table.node, key, content);
  if (node != kNoNode && full_.has(node)) {
    const BlockId found = index.block(node);
    shared_.blocks.retain(found);
    if (found != own) {
      for (KvGroup* group : groups_)
        group->replace(own, found);
    }
    full_.drop_reference(own, index.contains(own));
    own = found;
  } else {
    QUIRE_CHECK(sole_owner, "only its one owner fills a block");
    if (node == kNoNode) node = index.insert(table.node, key, content);
    index.set_block(node, own);
    if (shared_.listener != nullptr) shared_.listener->after_entry(node);
  }
  states_.put_on(node, snapshot);
  table.node = node;
  ++table.num_entered;
}

PrefixNode KvCache::enter_partial(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed) {
  PrefixIndex& index = shared_.index;
  const std::int64_t position = std::int64_t{table.num_entered} * block_size();
  if (!prefix_caching_ || num_computed <= position) return kNoNode;
  const BlockId own = table.blocks[as_size(table.num_entered)];
  StateGroup::Snapshot snapshot;
  if (index.contains(own)) {
    if (index.num_tokens(index.node_of(own)) >= num_computed - position) return index.node_of(own);
    if (pool().num_references(own) > 1) return kNoNode;
    snapshot = states_.take_off(index.node_of(own));
    leave_tree(own);
  }
  const auto content = tokens.subspan(as_size(position), as_size(num_computed - position));
  const PrefixIndex::Partial existing = index.find_partial(table.node, content);
  PrefixNode node = existing.node;
  if (std::cmp_not_equal(existing.num_tokens, content.size())) {
    node = index.insert_partial(table.node, content);
    index.set_block(node, own);
  }
  states_.put_on(node, snapshot);
  return node;
}

// Enters the table's computed tokens and returns the place where they end; none if they cannot be entered.
NodePlace KvCache::place_after(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed) {
  if (!prefix_caching_ || num_computed == 0) return {};
  const std::int64_t entered = std::int64_t{table.num_entered} * block_size();
  if (num_computed == entered) return {table.node, block_size()};
  return {enter_partial(table, tokens, num_computed), static_cast<std::int32_t>(num_computed - entered)};
}

void KvCache::keep_snapshot(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed) {
  if (skips_tokens_) return;
  if (states_.keep(table, place_after(table, tokens, num_computed), num_computed)) window_.keep(table, num_computed);
}

void KvCache::leave_tree(BlockId block) {
  const PrefixNode node = shared_.index.node_of(block);
  shared_.index.clear_block(node);
  shared_.index.forget_unused(node);
}

KvCache::Taken KvCache::take(BlockTable& table, PrefixNode node, std::size_t num_groups) {
  const KvGroups holding = beside().first(num_groups);
  if (!std::ranges::all_of(holding, [](const KvGroup* group) { return group->can_hold(false); })) return {};
  Taken taken{.block = shared_.index.block(node)};
  if (taken.block != kNoBlock) {
    shared_.blocks.retain(taken.block);
  } else {
    // Evictions that make room may push the node's own content out of its tier.
    shared_.index.add_user(node);
    const bool has_room = full_.free_blocks(1);
    shared_.index.drop_user(node);
    if (!has_room) return {};
    taken.block = shared_.blocks.allocate_one();
    shared_.index.set_block(node, taken.block);
    taken.is_new = true;
  }
  table.blocks.push_back(taken.block);
  table.node = node;
  ++table.num_entered;
  for (KvGroup* group : holding)
    group->hold(table, taken.extras);
  return taken;
}

void KvCache::fork(const BlockTable& from, BlockTable& to, std::int64_t num_computed) {
  QUIRE_CHECK(to.blocks.empty() && to.root == from.root, "a fork begins empty, under the same salt");
  for (KvGroup* group : groups_)
    group->fork(from, to, num_computed);
  to.keys.assign(from.keys.begin(),
                 from.keys.begin() + std::min<std::ptrdiff_t>(std::ssize(from.keys), num_computed / block_size()));
  to.num_entered = from.num_entered;
  to.node = from.node;
  to.cache_class = from.cache_class;
}

void KvCache::release(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed,
                      WhenEvicted when_evicted) {
  NodePlace end;
  if (!table.blocks.empty()) end = place_after(table, tokens, num_computed);
  if (table.state_before_drafts != kNoState) {  // the step was abandoned
    settle_drafts(table, true);
    drop_state(table);
  }
  for (KvGroup* group : std::views::reverse(groups_))
    group->release(table, end, when_evicted);
  table.num_entered = 0;
  table.node = table.root;
}

void KvCache::check_integrity() const {
  shared_.index.check_integrity();
  for (const KvGroup* group : groups_)
    group->check_integrity();
}

}  // namespace quire
