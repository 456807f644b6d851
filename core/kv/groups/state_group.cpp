#include "core/kv/groups/state_group.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {
constexpr int kMostSkipped = 16;  // snapshots of retained blocks, in the search for one to give up
}  // namespace

StateGroup::StateGroup(KvShared& shared, std::int64_t num_states) : KvGroup(shared), states_(num_states) {
  due_copies_.reserve(static_cast<std::size_t>(num_states));  // each state is copied to once
}

// The oldest snapshot, or a slightly younger one if the oldest ones belong to retained blocks.
StateId StateGroup::leaving_snapshot() const {
  StateId state = states_.oldest_snapshot();
  for (int i = 0; i < kMostSkipped && state != kNoState; ++i, state = states_.next_snapshot(state)) {
    const BlockId block = shared_.index.block(states_.node_of(state));
    if (block == kNoBlock || shared_.blocks.cache_class(block) != CacheClass::kRetained) return state;
  }
  return states_.oldest_snapshot();
}

StateId StateGroup::take() {
  const StateId state = states_.allocate();
  if (state != kNoState || states_.num_snapshots() == 0) return state;
  const StateId leaving = leaving_snapshot();
  const PrefixNode node = states_.node_of(leaving);
  if (shared_.listener != nullptr && has(node)) shared_.listener->before_loss(node);
  states_.drop(take_off(node).state);
  return states_.allocate();
}

bool StateGroup::is_due(StateId snapshot) const {
  return std::ranges::any_of(due_copies_, [&](const BlockCopy& copy) {
    return copy.of == BlockCopy::Of::kState && copy.destination.value == snapshot.value;
  });
}

StateGroup::Snapshot StateGroup::take_off(PrefixNode node) {
  const Snapshot snapshot{shared_.index.snapshot(node), shared_.index.snapshot_tokens(node)};
  shared_.index.set_snapshot(node, kNoState, 0);
  return snapshot;
}

void StateGroup::put_on(PrefixNode node, const Snapshot& snapshot) {
  if (snapshot.state == kNoState) return;
  if (shared_.index.snapshot(node) != kNoState) {
    if (shared_.index.snapshot_tokens(node) >= snapshot.num_tokens) return states_.drop(snapshot.state);
    states_.drop(take_off(node).state);
  }
  shared_.index.set_snapshot(node, snapshot.state, snapshot.num_tokens);
  states_.move(snapshot.state, node);
  if (shared_.listener != nullptr && snapshot.num_tokens == shared_.block_size) shared_.listener->after_entry(node);
}

bool StateGroup::can_keep(const NodePlace& place) const {
  return place.node != kNoNode && shared_.index.snapshot_tokens(place.node) < place.num_tokens;
}

bool StateGroup::keep(BlockTable& table, const NodePlace& place, std::int64_t num_computed) {
  table.num_tokens_at_snapshot = num_computed;
  if (!can_keep(place) || states_.num_available() == 0) return false;
  const StateId copy = take();
  due_copies_.emplace_back(table.state, copy);
  states_.keep(copy, place.node);
  put_on(place.node, {copy, place.num_tokens});
  return true;
}

void StateGroup::take_due_copies(std::vector<BlockCopy>& copies) {
  copies.insert(copies.begin(), due_copies_.begin(), due_copies_.end());
  due_copies_.clear();
}

void StateGroup::drop(BlockTable& table) {
  if (table.state != kNoState) states_.release(table.state);
  table.state = kNoState;
}

bool StateGroup::keep_before_drafts(BlockTable& table, std::int64_t num_others, std::vector<BlockCopy>& copies) {
  if (states_.num_available() <= num_others) return false;
  table.state_before_drafts = take();
  copies.emplace_back(table.state, table.state_before_drafts);
  return true;
}

void StateGroup::settle_drafts(BlockTable& table, bool all_right) {
  if (!all_right) std::swap(table.state, table.state_before_drafts);
  states_.release(std::exchange(table.state_before_drafts, kNoState));
}

bool StateGroup::shows_inside(const NodePlace& place, bool /*is_whole*/) const {
  return shared_.index.snapshot_tokens(place.node) == place.num_tokens;
}

void StateGroup::admit(BlockTable& table, const PrefixMatch& match, std::vector<BlockCopy>& copies,
                       std::int64_t /*num_tokens*/) {
  if (match.state != kNoState) states_.touch(match.state);
  table.state = take();
  const std::int64_t num_whole = (std::int64_t{table.num_entered} + match.num_blocks) * shared_.block_size;
  table.num_tokens_at_snapshot = num_whole + match.num_partial_tokens;
  if (match.state != kNoState && match.state != table.state) copies.emplace_back(match.state, table.state);
}

bool StateGroup::can_fork(const BlockTable& /*table*/, std::int64_t /*num_shared*/, bool is_all) const {
  return is_all && states_.num_available() > 0;
}

void StateGroup::fork(const BlockTable& from, BlockTable& to, std::int64_t /*num_computed*/) {
  to.state = take();
  QUIRE_CHECK(to.state != kNoState, "there are as many states as sequences may run");
  to.num_tokens_at_snapshot = from.num_tokens_at_snapshot;
  due_copies_.emplace_back(from.state, to.state);
}

void StateGroup::release(BlockTable& table, const NodePlace& end, WhenEvicted /*when_evicted*/) {
  if (table.state == kNoState) return;
  if (can_keep(end)) {
    states_.keep(table.state, end.node);
    put_on(end.node, {table.state, end.num_tokens});
  } else {
    states_.release(table.state);
  }
  table.state = kNoState;
}

void StateGroup::forget(BlockId block) {
  const PrefixNode node = shared_.index.node_of(block);
  if (node != kNoNode && shared_.index.snapshot(node) != kNoState) states_.drop(take_off(node).state);
}

void StateGroup::hold(BlockTable& table, KvExtras& out) {
  if (has(table.node) || states_.num_available() == 0) return;
  out.state = take();
  states_.keep(out.state, table.node);
  put_on(table.node, {out.state, shared_.block_size});
}

void StateGroup::check_integrity() const {
  states_.check_integrity();
  for (StateId state = states_.oldest_snapshot(); state != kNoState; state = states_.next_snapshot(state)) {
    QUIRE_CHECK(shared_.index.snapshot(states_.node_of(state)) == state, "a snapshot is where its node says");
  }
}

}  // namespace quire
