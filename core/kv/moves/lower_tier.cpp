#include "core/kv/moves/lower_tier.h"

#include <algorithm>
#include <new>
#include <utility>

#include "kernels/check.h"

namespace quire {

LowerTier::LowerTier(KvCache& kv, const KvBytes& bytes, HostTier* host, DiskTier* disk, const LowerTierOptions& options,
                     SharedTier* shared)
    : kv_(kv),
      layout_(kv.beside(), bytes),
      max_bytes_per_step_(std::max(options.max_bytes_per_step, layout_.block_bytes())),
      tiers_(layout_, host, disk, shared),
      step_(kv),
      out_(kv, layout_, tiers_, step_),
      back_(kv, layout_, tiers_, step_, options.max_bytes_in_flight),
      publications_(kv, layout_, tiers_, out_, step_),
      chain_(kv, layout_) {
  step_.bytes_out = max_bytes_per_step_;
  kv_.set_listener(this);
}

LowerTier::~LowerTier() {
  if (chain_.is_moving())
    chain_.give_up(Error{ErrorKind::kUnavailable, "The server is shutting down", "server_draining", {}});
  back_.end_all();
  kv_.set_listener(nullptr);
}

void LowerTier::begin_step(Clock::time_point now) {
  step_.bytes_in = step_.bytes_out = max_bytes_per_step_;
  step_.has_more = false;
  back_.receive();
  back_.advance_all(now);
  if (chain_.add_moves(step_)) step_.has_more = true;
  publications_.move_on();
  out_.keep_oldest();
}

void LowerTier::take_moves(std::vector<BlockMove>& moves) {
  QUIRE_CHECK(moves.empty(), "a step's moves are taken once");
  moves.swap(step_.moves);
}

void LowerTier::finish_moves(std::span<const BlockMove> moves, const MoveTimes& times) {
  std::int64_t bytes_in = 0;
  std::int64_t bytes_out = 0;
  for (const BlockMove& move : moves) {
    if (move.bytes == nullptr) continue;
    if (move.chain != 0) chain_.note_done(move);
    (move.kind == BlockMove::Kind::kLoad ? bytes_in : bytes_out) += std::ssize(*move.bytes);
    if (move.records != 0) out_.finish(move);
  }
  chain_.end_if_done();
  tiers_.note_moved(times, bytes_in, bytes_out);
}

void LowerTier::before_eviction(PrefixNode node, WhenEvicted what) {
  if (what == WhenEvicted::kForgotten) {
    tiers_.note_forgotten();
  } else {
    out_.keep(node);
  }
}

bool LowerTier::give_way() {
  bool gave_way = back_.give_way();
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

bool LowerTier::is_moving_next(BlockId block) const {
  return std::ranges::any_of(step_.moves, [&](const BlockMove& move) { return move.block == block; });
}

bool LowerTier::persist_some(std::int64_t num_blocks) {
  step_.bytes_out = max_bytes_per_step_;
  const bool has_more = out_.keep_next(num_blocks);
  back_.receive();
  return has_more;
}

bool LowerTier::wait_for_room(Clock::time_point until) {
  if (tiers_.disk() == nullptr || Clock::now() >= until) return false;
  if (has_disk_room()) return true;
  const bool in_time = tiers_.disk()->wait_idle(until);
  back_.receive();
  return in_time && has_disk_room();
}

void LowerTier::end_persisting(Clock::time_point until) {
  for (const TierSources::Source& source : tiers_.records()) {
    if (!source.tier->wait_idle(until)) source.tier->drop_writes();
  }
}

void LowerTier::save_chain(std::string salt, std::vector<TokenId> tokens, std::int64_t max_bytes,
                           ChainTransfer::Done done) {
  chain_.save(std::move(salt), std::move(tokens), max_bytes, std::move(done));
  if (!chain_.is_moving()) return;
  step_.has_more = true;
  try {
    restore(chain_.table(), chain_.tokens(), std::ssize(chain_.tokens()), 0.0);
  } catch (const std::bad_alloc&) {
    chain_.give_up(out_of_memory());
  }
}

void LowerTier::restore_chain(KeptChain chain, ChainTransfer::Done done) {
  chain_.restore(std::move(chain), std::move(done));
  step_.has_more = step_.has_more || chain_.is_moving();
}

}  // namespace quire
