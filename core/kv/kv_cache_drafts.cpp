// The recurrent state of a sequence whose drafts are verified.
#include <utility>

#include "core/kv/kv_cache.h"

namespace quire {

namespace {
constexpr int kMostSkipped = 16;  // snapshots of retained blocks, in the search for one to give up
}  // namespace

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

// The oldest but for those of blocks that are retained, as far as a look at a few finds another.
StateId KvCache::leaving_snapshot() const {
  StateId state = states_.oldest_snapshot();
  for (int i = 0; i < kMostSkipped && state != kNoState; ++i, state = states_.next_snapshot(state)) {
    const BlockId block = index_.block(states_.node_of(state));
    if (block == kNoBlock || pool_.cache_class(block) != CacheClass::kRetained) return state;
  }
  return states_.oldest_snapshot();
}

}  // namespace quire
