#include "core/kv/kv_cache.h"

#include <algorithm>
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
  constexpr std::int64_t kApart = 64;  // what a snapshot saves at least
  if ((!has_states() && !has_window()) || num_prompt_tokens < 2 * kBeforeEnd) return {};
  const auto rounded = [&](std::int64_t position) { return position / block_size_ * block_size_; };
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
    : block_size_(block_size),
      prefix_caching_(enable_prefix_caching),
      pool_(num_blocks),
      index_(num_blocks, block_size, hash, std::move(identity)),
      states_(num_states),
      window_tokens_(window.num_tokens),
      parts_(window.num_parts, num_blocks) {
  QUIRE_CHECK(!has_window() ||
                  (!has_states() && window.num_tokens > 0 &&
                   window.num_parts >= std::min(num_blocks, WindowPool::least_parts(window.num_tokens, block_size))),
              "there are parts enough for a sequence alone, and no states beside them");
  due_copies_.reserve(as_size(num_states));  // each state is copied to once
}

void KvCache::open(BlockTable& table, const std::string& salt) {
  table.root = table.node = index_.acquire_root(salt);
  table.is_open = true;
}

void KvCache::open(BlockTable& table, const BlockTable& beside) {
  open(table, index_.salt_of(beside.root));
}

void KvCache::close(BlockTable& table) {
  if (!table.is_open) return;
  if (table.is_restoring) listener_->before_close(table);
  QUIRE_CHECK(table.blocks.empty(), "blocks are released before their table is closed");
  index_.release_root(table.root);
  table.keys.clear();
  table.is_looked_up = table.is_fetched = false;
  table.is_open = false;
}

const ChainKey& KvCache::key_at(BlockTable& table, std::span<const TokenId> tokens, std::int64_t index) const {
  for (std::int64_t next = static_cast<std::int64_t>(table.keys.size()); next <= index; ++next) {
    const ChainKey& parent = next == 0 ? index_.key_of(table.root) : table.keys.back();
    table.keys.push_back(index_.key_after(parent, tokens.subspan(as_size(next * block_size_), as_size(block_size_))));
  }
  return table.keys[as_size(index)];
}

void KvCache::reserve(BlockTable& table, std::int64_t num_tokens) const {
  table.blocks.reserve(as_size(blocks_for(num_tokens)));
  if (prefix_caching_) table.keys.reserve(as_size(blocks_for(num_tokens)));
}

PrefixMatch KvCache::match(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit) const {
  PrefixMatch found{.node = table.node};
  if (!prefix_caching_) return found;
  if (has_states()) return match_snapshot(table, tokens, limit);
  if (has_window()) return match_window(table, tokens, limit);
  std::int64_t position = std::int64_t{table.num_entered} * block_size_;
  for (; position + block_size_ <= limit; position += block_size_) {
    const PrefixNode next = index_.find(found.node, key_at(table, tokens, position / block_size_),
                                        tokens.subspan(as_size(position), as_size(block_size_)));
    if (next == kNoNode || index_.block(next) == kNoBlock) break;
    found.node = next;
    ++found.num_blocks;
    found.num_unreferenced += pool_.is_cached(index_.block(next)) ? 1 : 0;
  }
  if (position < limit) {
    const auto left = std::min<std::int64_t>(limit - position, block_size_);
    const auto partial = index_.find_partial(found.node, tokens.subspan(as_size(position), as_size(left)));
    if (partial.node != kNoNode) found.partial_block = index_.block(partial.node);
    found.num_partial_tokens = partial.num_tokens;
  }
  return found;
}

// As above, but only as far as a state is kept: on the path, or in a block that begins alike where the path ends.
PrefixMatch KvCache::match_snapshot(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit) const {
  PrefixMatch best{.node = table.node};
  PrefixMatch path = best;
  std::int64_t position = std::int64_t{table.num_entered} * block_size_;
  const auto note = [&](PrefixNode node, std::int32_t num_tokens) {
    best = path;
    best.state = index_.snapshot(node);
    best.partial_block = index_.block(node);
    best.num_partial_tokens = num_tokens;
  };
  for (; position + block_size_ <= limit; position += block_size_) {
    const PrefixNode next = index_.find(path.node, key_at(table, tokens, position / block_size_),
                                        tokens.subspan(as_size(position), as_size(block_size_)));
    if (next == kNoNode || index_.block(next) == kNoBlock) break;
    const std::int32_t num_tokens = index_.snapshot_tokens(next);
    if (num_tokens > 0 && num_tokens < block_size_) note(next, num_tokens);
    path.node = next;
    ++path.num_blocks;
    path.num_unreferenced += pool_.is_cached(index_.block(next)) ? 1 : 0;
    if (num_tokens == block_size_) {
      best = path;
      best.state = index_.snapshot(next);
    }
  }
  if (position < limit) {
    const auto left = std::min<std::int64_t>(limit - position, block_size_);
    const auto partial = index_.find_snapshot(path.node, tokens.subspan(as_size(position), as_size(left)));
    if (partial.node != kNoNode) note(partial.node, partial.num_tokens);
  }
  return best;
}

std::int64_t KvCache::blocks_needed(const BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens) const {
  const std::int64_t held = static_cast<std::int64_t>(table.blocks.size()) + match.num_blocks;
  return std::max<std::int64_t>(0, blocks_for(num_tokens) - held) + match.num_unreferenced;
}

bool KvCache::admit(BlockTable& table, const PrefixMatch& match, std::int64_t num_tokens,
                    std::vector<BlockCopy>& copies) {
  QUIRE_CHECK(std::cmp_equal(table.blocks.size(), table.num_entered), "a table is admitted at its last entered block");
  if (!room_needed(table, match, num_tokens).fits(available())) return false;
  if (has_states() && states_.num_available() == 0) return false;
  if (has_states()) {
    if (match.state != kNoState) states_.touch(match.state);
    table.state = take_state();
    table.num_tokens_at_snapshot = std::int64_t{table.num_entered} * block_size_ + match_tokens(match);
    if (match.state != kNoState && match.state != table.state) copies.emplace_back(match.state, table.state);
  }
  const std::size_t first = table.blocks.size();
  table.blocks.resize(first + as_size(match.num_blocks));
  PrefixNode node = match.node;
  for (std::size_t i = table.blocks.size(); i-- > first; node = index_.parent(node)) {
    table.blocks[i] = index_.block(node);
    pool_.retain(table.blocks[i]);
  }
  table.num_entered += match.num_blocks;
  table.node = match.node;
  if (match.partial_block != kNoBlock) pool_.touch(match.partial_block);
  const std::size_t partial_position = table.blocks.size();
  if (has_window()) begin_window(table, match, num_tokens);
  append_new(table, blocks_for(num_tokens) - static_cast<std::int64_t>(table.blocks.size()));
  if (match.num_partial_tokens > 0 && match.partial_block != table.blocks[partial_position]) {
    copies.emplace_back(match.partial_block, table.blocks[partial_position]);
    if (has_window()) copy_partial_part(table, match, copies);
  }
  return true;
}

bool KvCache::grow(BlockTable& table, std::int64_t num_computed, std::int64_t num_tokens,
                   std::vector<BlockCopy>& copies) {
  const auto held = static_cast<std::int64_t>(table.blocks.size());
  const std::int64_t added = std::max<std::int64_t>(0, blocks_for(num_tokens) - held);
  const std::size_t tail = as_size(num_computed / block_size_);
  const bool shared_tail = tail < table.blocks.size() && pool_.num_references(table.blocks[tail]) > 1;
  const auto has_parts = [&] { return !has_window() || has_parts_to_grow(table, num_tokens, shared_tail); };
  if (!has_parts() && !(listener_ != nullptr && listener_->give_way() && has_parts())) return false;
  const std::int64_t needed = added + (shared_tail ? 1 : 0);
  if (needed > 0 && !make_room(needed) && !(listener_ != nullptr && listener_->give_way() && make_room(needed)))
    return false;
  if (shared_tail) copy_shared_tail(table, tail, copies);
  append_new(table, added);
  if (has_window()) give_parts(table, num_tokens);
  return true;
}

void KvCache::copy_shared_tail(BlockTable& table, std::size_t tail, std::vector<BlockCopy>& copies) {
  const BlockId shared = table.blocks[tail];
  BlockId copy = kNoBlock;
  pool_.allocate({&copy, 1});
  copies.emplace_back(shared, copy);
  if (has_window()) {
    give_part(table, copy);
    copies.emplace_back(parts_.part_of(shared), parts_.part_of(copy));
    parts_.unpin(shared);
  }
  release_block(shared, index_.contains(shared));
  table.blocks[tail] = copy;
}

std::int64_t KvCache::adopt(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed,
                            std::int64_t limit) {
  std::int64_t position = num_computed;
  // A state cannot skip tokens.
  if (!prefix_caching_ || has_states() || position != std::int64_t{table.num_entered} * block_size_) return 0;
  for (; position + block_size_ <= limit; position += block_size_) {
    const PrefixNode next = index_.find(table.node, key_at(table, tokens, table.num_entered),
                                        tokens.subspan(as_size(position), as_size(block_size_)));
    if (next == kNoNode || index_.block(next) == kNoBlock) break;
    const BlockId found = index_.block(next);
    if (has_window() && !pin_adopted(table, found)) break;
    pool_.retain(found);
    if (std::cmp_equal(table.blocks.size(), table.num_entered)) {
      table.blocks.push_back(found);  // a text that a grammar forced has no blocks of its own yet
    } else {
      BlockId& own = table.blocks[as_size(table.num_entered)];
      release_block(own, index_.contains(own));
      own = found;
    }
    table.node = next;
    ++table.num_entered;
    if (has_window()) unpin_behind(table, position + block_size_);
  }
  return position - num_computed;
}

void KvCache::commit(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed) {
  while (prefix_caching_ && (std::int64_t{table.num_entered} + 1) * block_size_ <= num_computed) {
    const std::int64_t position = std::int64_t{table.num_entered} * block_size_;
    enter_full(table, key_at(table, tokens, table.num_entered),
               tokens.subspan(as_size(position), as_size(block_size_)));
  }
  if (has_window()) unpin_behind(table, num_computed);
  if (has_states() && prefix_caching_ && num_computed - table.num_tokens_at_snapshot >= snapshot_interval_) {
    keep_snapshot(table, tokens, num_computed);
  }
}

// Where the same content is in the tree already, the table takes that block and its own is freed: by batch invariance
// both hold the same numbers, and one path per content keeps every entered block reachable.
void KvCache::enter_full(BlockTable& table, const ChainKey& key, std::span<const TokenId> content) {
  BlockId& own = table.blocks[as_size(table.num_entered)];
  const bool sole_owner = pool_.num_references(own) == 1;
  Snapshot snapshot;
  if (index_.contains(own) && sole_owner) {
    snapshot = take_off(index_.node_of(own));
    leave_tree(own);
  }
  PrefixNode node = index_.find(table.node, key, content);
  if (node != kNoNode && index_.block(node) != kNoBlock) {
    const BlockId found = index_.block(node);
    pool_.retain(found);
    if (has_window() && found != own) hand_over_part(own, found);
    release_block(own, index_.contains(own));
    own = found;
  } else {
    QUIRE_CHECK(sole_owner, "only its one owner fills a block");
    if (node == kNoNode) node = index_.insert(table.node, key, content);
    index_.set_block(node, own);
    if (listener_ != nullptr) listener_->after_entry(node);
  }
  put_on(node, snapshot);
  table.node = node;
  ++table.num_entered;
}

PrefixNode KvCache::enter_partial(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed) {
  const std::int64_t position = std::int64_t{table.num_entered} * block_size_;
  if (!prefix_caching_ || num_computed <= position) return kNoNode;
  const BlockId own = table.blocks[as_size(table.num_entered)];
  Snapshot snapshot;
  if (index_.contains(own)) {
    if (index_.num_tokens(index_.node_of(own)) >= num_computed - position) return index_.node_of(own);
    if (pool_.num_references(own) > 1) return kNoNode;
    snapshot = take_off(index_.node_of(own));
    leave_tree(own);
  }
  const auto content = tokens.subspan(as_size(position), as_size(num_computed - position));
  const PrefixIndex::Partial existing = index_.find_partial(table.node, content);
  PrefixNode node = existing.node;
  if (std::cmp_not_equal(existing.num_tokens, content.size())) {
    node = index_.insert_partial(table.node, content);
    index_.set_block(node, own);
  }
  put_on(node, snapshot);
  return node;
}

bool KvCache::is_due(StateId snapshot) const {
  return std::ranges::any_of(due_copies_, [&](const BlockCopy& copy) {
    return copy.of == BlockCopy::Of::kState && copy.destination.value == snapshot.value;
  });
}

bool KvCache::has_state_after(PrefixNode node) const {
  return index_.snapshot_tokens(node) == block_size_ && !is_due(index_.snapshot(node));
}

StateId KvCache::keep_state_after(PrefixNode node) {
  if (states_.num_available() == 0) return kNoState;
  const StateId state = take_state();
  states_.keep(state, node);
  put_on(node, {state, block_size_});
  return state;
}

KvCache::Snapshot KvCache::take_off(PrefixNode node) {
  const Snapshot snapshot{index_.snapshot(node), index_.snapshot_tokens(node)};
  index_.set_snapshot(node, kNoState, 0);
  return snapshot;
}

// A node keeps one: what stands after more of its tokens.
void KvCache::put_on(PrefixNode node, const Snapshot& snapshot) {
  if (snapshot.state == kNoState) return;
  if (index_.snapshot(node) != kNoState) {
    if (index_.snapshot_tokens(node) >= snapshot.num_tokens) return states_.drop(snapshot.state);
    states_.drop(take_off(node).state);
  }
  index_.set_snapshot(node, snapshot.state, snapshot.num_tokens);
  states_.move(snapshot.state, node);
  if (listener_ != nullptr && snapshot.num_tokens == block_size_) listener_->after_entry(node);
}

PrefixNode KvCache::node_for_snapshot(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed,
                                      std::int32_t& num_tokens) {
  if (!prefix_caching_ || num_computed == 0) return kNoNode;
  const std::int64_t entered = std::int64_t{table.num_entered} * block_size_;
  const PrefixNode node = num_computed == entered ? table.node : enter_partial(table, tokens, num_computed);
  num_tokens = static_cast<std::int32_t>(num_computed == entered ? block_size_ : num_computed - entered);
  const bool is_kept = node == kNoNode || index_.snapshot_tokens(node) >= num_tokens;
  return is_kept ? kNoNode : node;
}

void KvCache::keep_snapshot(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed) {
  if (!has_states()) return;
  table.num_tokens_at_snapshot = num_computed;
  std::int32_t num_tokens = 0;
  const PrefixNode node = node_for_snapshot(table, tokens, num_computed, num_tokens);
  if (node == kNoNode || states_.num_available() == 0) return;
  const StateId copy = take_state();
  due_copies_.emplace_back(table.state, copy);
  states_.keep(copy, node);
  put_on(node, {copy, num_tokens});
}

void KvCache::take_due_copies(std::vector<BlockCopy>& copies) {
  copies.insert(copies.begin(), due_copies_.begin(), due_copies_.end());
  due_copies_.clear();
}

void KvCache::drop_state(BlockTable& table) {
  if (table.state != kNoState) states_.release(table.state);
  table.state = kNoState;
}

void KvCache::let_go_of_state(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed) {
  if (table.state == kNoState) return;
  std::int32_t num_tokens = 0;
  const PrefixNode node = node_for_snapshot(table, tokens, num_computed, num_tokens);
  if (node != kNoNode) {
    states_.keep(table.state, node);
    put_on(node, {table.state, num_tokens});
  } else {
    states_.release(table.state);
  }
  table.state = kNoState;
}

void KvCache::leave_tree(BlockId block) {
  const PrefixNode node = index_.node_of(block);
  if (index_.snapshot(node) != kNoState) states_.drop(take_off(node).state);
  index_.clear_block(node);
  index_.forget_unused(node);
}

KvCache::Taken KvCache::take(BlockTable& table, PrefixNode node, bool with_part) {
  if (with_part && parts_.num_available() == 0) return {};
  Taken taken{.block = index_.block(node)};
  if (taken.block != kNoBlock) {
    pool_.retain(taken.block);
  } else {
    // What leaves the pool to make room may push the node's own content out of its tier.
    index_.add_user(node);
    const bool has_room = make_room(1);
    index_.drop_user(node);
    if (!has_room) return {};
    pool_.allocate({&taken.block, 1});
    index_.set_block(node, taken.block);
    taken.is_new = true;
  }
  table.blocks.push_back(taken.block);
  table.node = node;
  ++table.num_entered;
  if (with_part) taken.new_part = hold_part(table);
  return taken;
}

void KvCache::fork(const BlockTable& from, BlockTable& to, std::int64_t num_computed) {
  QUIRE_CHECK(to.blocks.empty() && to.root == from.root, "a fork begins empty, under the same salt");
  if (has_states()) {
    to.state = take_state();
    QUIRE_CHECK(to.state != kNoState, "there are as many states as sequences may run");
    to.num_tokens_at_snapshot = from.num_tokens_at_snapshot;
    due_copies_.emplace_back(from.state, to.state);
  }
  to.blocks.assign(from.blocks.begin(), from.blocks.begin() + blocks_for(num_computed));
  for (const BlockId block : to.blocks)
    pool_.retain(block);
  to.keys.assign(from.keys.begin(),
                 from.keys.begin() + std::min<std::ptrdiff_t>(std::ssize(from.keys), num_computed / block_size_));
  to.num_entered = from.num_entered;
  to.node = from.node;
  to.cache_class = from.cache_class;
  if (has_window()) pin_computed(to, num_computed);
}

void KvCache::release(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed,
                      WhenEvicted when_evicted) {
  if (!table.blocks.empty()) enter_partial(table, tokens, num_computed);
  if (table.state_before_drafts != kNoState) {  // the step was abandoned
    settle_drafts(table, true);
    drop_state(table);
  }
  let_go_of_state(table, tokens, num_computed);
  if (has_window()) unpin_all(table);
  for (std::size_t i = table.blocks.size(); i-- > 0;) {
    pool_.raise(table.blocks[i], table.cache_class);
    pool_.set_forgettable(table.blocks[i], when_evicted == WhenEvicted::kForgotten);
    release_block(table.blocks[i], index_.contains(table.blocks[i]));
  }
  table.blocks.clear();
  table.num_entered = 0;
  table.node = table.root;
}

bool KvCache::make_room(std::int64_t num_blocks) {
  if (num_blocks > pool_.num_available()) return false;
  while (pool_.num_free() < num_blocks)
    evict_oldest();
  return true;
}

void KvCache::evict_oldest() {
  const BlockId block = pool_.oldest_cached();
  if (listener_ != nullptr) {
    listener_->before_eviction(index_.node_of(block),
                               pool_.is_forgettable(block) ? WhenEvicted::kForgotten : WhenEvicted::kOffered);
  }
  leave_tree(block);
  if (has_window()) parts_.drop(block);
  pool_.drop(block);
}

void KvCache::release_block(BlockId block, bool keep) {
  pool_.release(block, keep);
  if (has_window() && !keep && pool_.num_references(block) == 0) parts_.drop(block);
}

void KvCache::append_new(BlockTable& table, std::int64_t num_blocks) {
  if (num_blocks <= 0) return;
  QUIRE_CHECK(make_room(num_blocks), "room was counted before");
  const std::size_t first = table.blocks.size();
  table.blocks.resize(first + as_size(num_blocks));
  QUIRE_CHECK(pool_.allocate(std::span(table.blocks).subspan(first)), "room was made before");
}

void KvCache::check_integrity() const {
  pool_.check_integrity();
  index_.check_integrity();
  states_.check_integrity();
  if (has_window()) check_parts();
  for (StateId state = states_.oldest_snapshot(); state != kNoState; state = states_.next_snapshot(state)) {
    QUIRE_CHECK(index_.snapshot(states_.node_of(state)) == state, "a snapshot is where its node says");
  }
  for (std::int64_t i = 0; i < pool_.num_blocks(); ++i) {
    const BlockId block{static_cast<std::int32_t>(i)};
    if (pool_.is_cached(block)) QUIRE_CHECK(index_.contains(block), "a cached block can be found");
    if (!pool_.is_cached(block) && pool_.num_references(block) == 0) {
      QUIRE_CHECK(!index_.contains(block), "a free block cannot be found");
    }
  }
}

}  // namespace quire
