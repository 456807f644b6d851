#include "core/kv/tiers/tier_order.h"

#include <algorithm>

namespace quire {

const TierOrder::Held* TierOrder::find(PrefixNode node) const {
  const auto found = held_.find(node);
  return found != held_.end() && found->second.is_held ? &found->second : nullptr;
}

bool TierOrder::makes_room(std::int64_t num_bytes, std::int64_t max_bytes, std::span<const PrefixNode> kept) const {
  if (num_bytes > max_bytes) return false;
  if (num_bytes_ + num_bytes <= max_bytes) return true;
  const PrefixNode leaving = next_to_leave();
  return leaving != kNoNode && std::ranges::find(kept, leaving) == kept.end();
}

// Call after each change that affects whether the node can leave; call stop_leaving() before the change.
void TierOrder::settle(PrefixNode node, Held& held) {
  if (can_leave(held)) {
    held.place.value() = {held.last_use, node};
    leaving_.insert(std::move(held.place));
  } else if (!held.is_held && held.num_children == 0) {
    held_.erase(node);
  }
}

void TierOrder::stop_leaving(PrefixNode node, Held& held) {
  if (auto place = leaving_.extract({held.last_use, node}); !place.empty()) held.place = std::move(place);
}

void TierOrder::add(PrefixNode node, PrefixNode parent, std::int64_t num_bytes, bool is_there) {
  // Memory is allocated before anything changes.
  Leaving place;
  place.emplace(0, node);
  Held& held = held_[node];
  Held* const before = PrefixIndex::is_root(parent) ? nullptr : &held_[parent];
  held.place = place.extract(place.begin());
  held.parent = parent;
  held.num_bytes = num_bytes;
  held.last_use = ++num_uses_;
  held.is_held = true;
  held.is_there = is_there;
  settle(node, held);
  num_bytes_ += num_bytes;
  ++size_;
  if (before == nullptr) return;
  stop_leaving(parent, *before);
  ++before->num_children;
}

void TierOrder::set_there(PrefixNode node) {
  Held& held = held_.at(node);
  if (held.is_there) return;
  held.is_there = true;
  settle(node, held);
}

void TierOrder::touch(PrefixNode node) {
  Held& held = held_.at(node);
  stop_leaving(node, held);
  held.last_use = ++num_uses_;
  settle(node, held);
}

void TierOrder::remove(PrefixNode node) {
  Held& held = held_.at(node);
  const PrefixNode parent = held.parent;
  stop_leaving(node, held);
  num_bytes_ -= held.num_bytes;
  --size_;
  held.is_held = held.is_there = false;
  held.num_bytes = 0;
  held.place = {};
  settle(node, held);
  if (PrefixIndex::is_root(parent)) return;
  Held& before = held_.at(parent);
  --before.num_children;
  settle(parent, before);
}

}  // namespace quire
