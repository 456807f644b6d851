// The recurrent state of a sequence whose drafts are verified.
#include <utility>

#include "core/kv/kv_cache.h"

namespace quire {

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
