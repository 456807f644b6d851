#include "core/kv/tiers/record_tier.h"

#include <new>

namespace quire {

namespace {

constexpr std::size_t kMostEvents = 512;  // limit of one call

}  // namespace

bool RecordTier::receive(PrefixIndex& index, std::vector<Arrived>& arrived) {
  const std::size_t num_before = events_.size();
  fetch_events(events_, kMostEvents);
  const bool has_more = events_.size() == num_before + kMostEvents;
  for (; !events_.empty(); events_.pop_front()) {
    try {
      if (arrived.size() == arrived.capacity()) arrived.reserve(2 * arrived.size() + 1);
    } catch (const std::bad_alloc&) {
      return false;
    }
    take_event(index, events_.front(), arrived);
  }
  return has_more;
}

void RecordTier::forget(PrefixIndex& index, PrefixNode node) {
  order_.remove(node);
  strike(index, node);
  index.forget_unused(node);
}

void RecordTier::strike(PrefixIndex& index, PrefixNode node) {
  nodes_.erase(index.key_of(node));
  drop(node);
  index.set_below(node, kind_, false);
}

}  // namespace quire
