#include "core/engine/held_ends.h"

#include <algorithm>

#include "core/base/log.h"

namespace quire {

bool HeldEnds::hold(Generation& generation) noexcept {
  const LiveRequest& live = *generation.live;
  const FinishReason reason = generation.event.finish->reason;
  const bool is_whole = reason == FinishReason::kStop || reason == FinishReason::kLength;
  const bool is_last = live.num_ended + 1 == live.request->num_choices;
  if (!live.request->transfer.publishes || !is_whole || !is_last) return false;
  if (tier_ == nullptr || !tier_->can_publish()) return false;
  return attempt(no_memory_, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
           std::list<Held> held(1);
           tier_->begin_publication(held.front().publication, generation.table, live.request->prompt, Clock::now());
           held.front().sink = live.sink;
           held.front().event = std::move(generation.event);
           held_.splice(held_.end(), held);
           return {};
         }) == nullptr;
}

void HeldEnds::send(std::optional<Clock::time_point> now) {
  for (auto held = held_.begin(); held != held_.end();) {
    if (now && !tier_->has_ended(held->publication, *now)) {
      ++held;
      continue;
    }
    const SharedError error = attempt(no_memory_, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
      held->event.finish->published = std::make_shared<const SharedPrefix>(tier_->end_publication(held->publication));
      return {};
    });
    if (error != nullptr) log::warn("no memory to say what of a prompt is published");
    held->sink->send(std::move(held->event));
    held = held_.erase(held);
  }
}

std::optional<Clock::time_point> HeldEnds::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const Held& held : held_)
    next = std::min(next.value_or(held.publication.give_up), held.publication.give_up);
  return next;
}

}  // namespace quire
