// LowerTier: what is written to the disk at an engine's end and while it is idle, the chains of saved slots, and what
// gives way to others.
#include <algorithm>
#include <new>
#include <utility>

#include "core/kv/lower_tier.h"

namespace quire {

bool LowerTier::persist_some(std::int64_t num_blocks) {
  bytes_out_ = std::max(options_.max_bytes_per_step, block_bytes());
  const std::int64_t end = std::min(next_to_persist_ + num_blocks, kv_.pool().num_blocks());
  for (; next_to_persist_ < end && bytes_out_ >= block_bytes() && has_disk_room(); ++next_to_persist_) {
    const PrefixNode node = index_.node_of(BlockId{static_cast<std::int32_t>(next_to_persist_)});
    if (node != kNoNode) keep_below(node);
  }
  receive();
  if (next_to_persist_ < kv_.pool().num_blocks()) return true;
  next_to_persist_ = 0;
  return false;
}

bool LowerTier::wait_for_room(Clock::time_point until) {
  if (disk_ == nullptr || Clock::now() >= until) return false;
  if (has_disk_room()) return true;
  const bool in_time = disk_->wait_idle(until);
  receive();
  return in_time && has_disk_room();
}

void LowerTier::end_persisting(Clock::time_point until) {
  for (const Source& source : sources_) {
    if (!source.tier->wait_idle(until)) source.tier->drop_writes();
  }
}

void LowerTier::save_chain(std::string salt, std::vector<TokenId> tokens, std::int64_t max_bytes,
                           ChainTransfer::Done done) {
  chain_.save(std::move(salt), std::move(tokens), max_bytes, std::move(done));
  if (!chain_.is_moving()) return;
  is_moving_ = true;
  try {
    restore(chain_.table(), chain_.tokens(), std::ssize(chain_.tokens()), 0.0);
  } catch (const std::bad_alloc&) {
    chain_.give_up(out_of_memory());
  }
}

void LowerTier::restore_chain(KeptChain chain, ChainTransfer::Done done) {
  chain_.restore(std::move(chain), std::move(done));
  is_moving_ = is_moving_ || chain_.is_moving();
}

void LowerTier::before_close(BlockTable& table) {
  const auto closing =
      std::find_if(restores_.begin(), restores_.end(), [&](const Restore& each) { return each.table == &table; });
  finish(closing);
}

bool LowerTier::give_way() {
  bool gave_way = false;
  for (auto restore = restores_.begin(); restore != restores_.end();) {
    const bool holds = !restore->held.blocks.empty();
    restore = holds ? finish(restore) : std::next(restore);
    gave_way = gave_way || holds;
  }
  if (chain_.holds_blocks()) {
    give_up_chain({ErrorKind::kUnavailable,
                   "Running requests needed the room. Please retry later.",
                   "kv_cache_full",
                   {},
                   std::chrono::seconds(1)});
    gave_way = true;
  }
  return gave_way;
}

}  // namespace quire
