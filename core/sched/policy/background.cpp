#include "core/sched/policy/background.h"

#include <cstdint>

namespace quire {

namespace {

// Background sequences may add this share of the other streams' time to a step.
constexpr double kBackgroundPart = 0.06;

}  // namespace

// The background evicts cached content of others only until it holds half of the pool.
bool Background::has_room(const Sequence& sequence) const {
  const std::int64_t needed = kv_.blocks_for(sequence.num_tokens()) + 1;
  if (needed <= kv_.pool().num_free() + kv_.pool().num_cached(CacheClass::kBackground)) return true;
  std::int64_t held = 0;
  for (const Sequence* running : running_.sequences())
    held += running->request->is_background ? static_cast<std::int64_t>(running->table.blocks.size()) : 0;
  return held == 0 || held + needed <= kv_.pool().num_blocks() / 2;
}

void Background::choose_streams(Pass& pass) const {
  StepTerms terms;
  pass.has_foreground = false;
  for (const Sequence* sequence : running_.sequences()) {
    if (sequence->request->is_background) continue;
    pass.has_foreground = true;
    if (sequence->streams_now) terms.add_stream(sequence->num_computed, sequence->num_remaining());
  }
  if (!pass.has_foreground) return;
  const double alone = cost_.seconds(terms);
  pass.background_seconds = kBackgroundPart * alone;
  for (Sequence* sequence : running_.sequences()) {
    if (!sequence->request->is_background || !sequence->streams_now) continue;
    StepTerms with = terms;
    with.add_stream(sequence->num_computed, sequence->num_remaining());
    sequence->streams_now = cost_.known() && cost_.seconds(with) - alone <= pass.background_seconds;
    if (sequence->streams_now) terms = with;
  }
  pass.background_seconds -= cost_.seconds(terms) - alone;
}

}  // namespace quire
