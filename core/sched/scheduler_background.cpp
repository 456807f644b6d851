#include <algorithm>

#include "core/sched/importance.h"
#include "core/sched/scheduler.h"

namespace quire {

namespace {

// Of the time of the other sequences' streams, what background sequences may add to a step.
constexpr double kBackgroundPart = 0.06;

bool is_background(const Sequence* sequence) {
  return sequence->request->is_background;
}

}  // namespace

// What others have left in the cache goes for background sequences only until these hold half of the pool: one at least
// runs, whatever it takes.
bool Scheduler::has_background_room(const Sequence& sequence) const {
  const std::int64_t needed = kv_.blocks_for(sequence.num_tokens()) + 1;
  if (needed <= kv_.pool().num_free() + kv_.pool().num_cached(CacheClass::kBackground)) return true;
  std::int64_t held = 0;
  for (const Sequence* running : running_)
    held += is_background(running) ? static_cast<std::int64_t>(running->table.blocks.size()) : 0;
  return held == 0 || held + needed <= kv_.pool().num_blocks() / 2;
}

// The first request for which all that background sequences hold is enough gets a place and blocks from them.
void Scheduler::displace_background(StepPlan& plan) {
  const auto holds = [](const Sequence* running) { return is_background(running) && running->num_scheduled == 0; };
  if (std::none_of(running_.begin(), running_.end(), holds) || !find_candidates(kForegroundLanes)) return;
  KvRoom held = kv_.available();
  for (const Sequence* running : running_) {
    if (!holds(running)) continue;
    const auto num_blocks = static_cast<std::int64_t>(running->table.blocks.size());
    held += {num_blocks, num_blocks};
  }
  std::erase_if(candidates_,
                [&](const Candidate& each) { return !room_needed(each).fits(held) || !may_bypass(*each.sequence); });
  if (candidates_.empty()) return;
  const auto best = std::min_element(candidates_.begin(), candidates_.end(),
                                     [&](const Candidate& a, const Candidate& b) { return goes_before(a, b); });
  while (num_places_left() == 0 || !room_needed(*best).fits(kv_.available())) {
    const auto victim = std::find_if(running_.rbegin(), running_.rend(), holds);
    if (victim == running_.rend()) return;
    preempt(plan, **victim);
  }
}

// Beside other sequences those of the background continue as far as their part of the step reaches, the oldest first;
// alone they have the whole step.
void Scheduler::choose_background() {
  StepTerms terms;
  has_foreground_ = false;
  for (const Sequence* sequence : running_) {
    if (is_background(sequence)) continue;
    has_foreground_ = true;
    if (sequence->streams_now) terms.add_stream(sequence->num_computed, sequence->num_remaining());
  }
  if (!has_foreground_) return;
  const double alone = cost_.seconds(terms);
  background_seconds_ = kBackgroundPart * alone;
  for (Sequence* sequence : running_) {
    if (!is_background(sequence) || !sequence->streams_now) continue;
    StepTerms with = terms;
    with.add_stream(sequence->num_computed, sequence->num_remaining());
    sequence->streams_now = cost_.known() && cost_.seconds(with) - alone <= background_seconds_;
    if (sequence->streams_now) terms = with;
  }
  background_seconds_ -= cost_.seconds(terms) - alone;
}

// What fits the background's part of the step, be it a few tokens.
void Scheduler::give_background(Share& share) {
  const Sequence& sequence = *share.sequence;
  const double seconds = std::min(background_seconds_, prompt_seconds_);
  const std::int64_t wanted = wanted_of(share);
  std::int64_t given = std::min({wanted, prompt_budget_, cost_.prompt_tokens_within(seconds, sequence.num_computed)});
  if (sequence.has_bound()) given = std::min(given, sequence.max_chunk - num_bounded_);
  if (given <= 0 || !cost_.known() || (options_.whole_prompts && given < wanted)) return;
  background_seconds_ -= cost_.prompt_seconds(sequence.num_computed, given);
  add_to(share, given);
}

}  // namespace quire
