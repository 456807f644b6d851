#include "core/sched/policy/displacement.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace quire {

namespace {

constexpr int kMostDisplaced = 4;  // places taken in one step

bool gives_way(const Sequence* running) {
  return running->request->is_background && running->num_scheduled == 0;
}

}  // namespace

void Displacement::fit(Pass& pass) {
  displace_background(pass);
  if (running_.num_places_left() == 0) take_places(pass);
}

// Gives places and blocks of background sequences to the first waiting request for which they are enough.
void Displacement::displace_background(Pass& pass) {
  if (std::ranges::none_of(running_.sequences(), gives_way) || !candidates_.find(pass, kForegroundLanes)) return;
  KvRoom held = kv_.available();
  for (const Sequence* running : running_.sequences()) {
    if (!gives_way(running)) continue;
    const auto num_blocks = static_cast<std::int64_t>(running->table.blocks.size());
    held += {num_blocks, num_blocks};
  }
  candidates_.keep_fitting(held);
  if (candidates_.empty()) return;
  const StartCandidates::Candidate& first = candidates_.first();
  const auto fits = [&] { return candidates_.room_needed(*first.sequence, first.match).fits(kv_.available()); };
  while (running_.num_places_left() == 0 || !fits()) {
    const std::span<Sequence* const> running = running_.sequences();
    const auto victim = std::find_if(running.rbegin(), running.rend(), gives_way);
    if (victim == running.rend()) return;
    running_.preempt(pass, **victim);
  }
}

// Called when all places are taken.
void Displacement::take_places(Pass& pass) {
  const bool by_class = options_.policy == SchedulerPolicy::kPriority;
  if (running_.num_choices() + running_.num_of_lists() == 0 && !by_class) return;
  if (!candidates_.find(pass, kPlacelessLanes)) return;
  candidates_.set_roomless_aside();
  for (int i = 0; i < kMostDisplaced && !candidates_.empty(); ++i) {
    const StartCandidates::Candidate first = candidates_.take_first();
    Sequence* const displaced = choose(pass, *first.sequence);
    const bool fits = candidates_.room_needed(*first.sequence, first.match).fits(kv_.available());
    if (displaced == nullptr || !fits) continue;
    running_.preempt(pass, *displaced);
    admission_.try_start(pass, *first.sequence);
  }
}

// The least important choice or list's prompt that has had its turn, or under kPriority the least important sequence of
// a class below the waiting one's.
Sequence* Displacement::choose(const Pass& pass, const Sequence& waiting) const {
  const bool by_class = options_.policy == SchedulerPolicy::kPriority;
  const auto gives_place = [&](const Sequence* running) {
    if (running->is_one_of_many() && pass.step >= running->turn_end) return true;
    return by_class && running->request->priority > waiting.request->priority && running->level > waiting.level;
  };
  const std::span<Sequence* const> running = running_.sequences();
  const auto found = std::find_if(running.rbegin(), running.rend(), gives_place);
  return found == running.rend() ? nullptr : *found;
}

}  // namespace quire
