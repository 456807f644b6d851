// Room for recurrent states: which snapshot leaves for a new one, and the copy from before drafts that are verified.
#include <utility>

#include "core/kv/kv_cache.h"

namespace quire {

namespace {
constexpr int kMostSkipped = 16;  // snapshots of retained blocks, in the search for one to give up
}  // namespace

// The oldest but for those of blocks that are retained, as far as a look at a few finds another.
StateId KvCache::leaving_snapshot() const {
  StateId state = states_.oldest_snapshot();
  for (int i = 0; i < kMostSkipped && state != kNoState; ++i, state = states_.next_snapshot(state)) {
    const BlockId block = index_.block(states_.node_of(state));
    if (block == kNoBlock || pool_.cache_class(block) != CacheClass::kRetained) return state;
  }
  return states_.oldest_snapshot();
}

StateId KvCache::take_state() {
  const StateId state = states_.allocate();
  if (state != kNoState || states_.num_snapshots() == 0) return state;
  const StateId leaving = leaving_snapshot();
  const PrefixNode node = states_.node_of(leaving);
  if (listener_ != nullptr && has_state_after(node)) listener_->before_snapshot_leaves(node);
  states_.drop(take_off(node).state);
  return states_.allocate();
}

bool KvCache::keep_state_before_drafts(BlockTable& table, std::int64_t num_others, std::vector<BlockCopy>& copies) {
  if (states_.num_available() <= num_others) return false;
  table.state_before_drafts = take_state();
  copies.emplace_back(table.state, table.state_before_drafts);
  return true;
}

void KvCache::settle_drafts(BlockTable& table, bool all_right) {
  if (!all_right) std::swap(table.state, table.state_before_drafts);
  states_.release(std::exchange(table.state_before_drafts, kNoState));
}

}  // namespace quire
