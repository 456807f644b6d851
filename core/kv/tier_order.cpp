#include "core/kv/tier_order.h"

namespace quire {

const TierOrder::Held* TierOrder::find(PrefixNode node) const {
  const auto found = held_.find(node);
  return found != held_.end() && found->second.is_held ? &found->second : nullptr;
}

// Called after each change of what decides whether the node can leave; before it, the node is taken out of leaving_.
void TierOrder::settle(PrefixNode node, Held& held) {
  if (can_leave(held)) {
    leaving_.emplace(held.last_use, node);
  } else if (!held.is_held && held.num_children == 0) {
    held_.erase(node);
  }
}

void TierOrder::add(PrefixNode node, PrefixNode parent, std::int64_t num_bytes, bool is_there) {
  // All memory is taken before anything changes.
  Held& held = held_[node];
  Held* const before = PrefixIndex::is_root(parent) ? nullptr : &held_[parent];
  if (is_there && held.num_children == 0) leaving_.emplace(num_uses_ + 1, node);
  held.parent = parent;
  held.num_bytes = num_bytes;
  held.last_use = ++num_uses_;
  held.is_held = true;
  held.is_there = is_there;
  num_bytes_ += num_bytes;
  ++size_;
  if (before == nullptr) return;
  leaving_.erase({before->last_use, parent});
  ++before->num_children;
}

void TierOrder::set_there(PrefixNode node) {
  Held& held = held_.at(node);
  held.is_there = true;
  settle(node, held);
}

void TierOrder::touch(PrefixNode node) {
  Held& held = held_.at(node);
  auto place = leaving_.extract({held.last_use, node});
  held.last_use = ++num_uses_;
  if (place.empty()) return;
  place.value().first = held.last_use;
  leaving_.insert(std::move(place));
}

void TierOrder::remove(PrefixNode node) {
  Held& held = held_.at(node);
  const PrefixNode parent = held.parent;
  leaving_.erase({held.last_use, node});
  num_bytes_ -= held.num_bytes;
  --size_;
  held.is_held = held.is_there = false;
  held.num_bytes = 0;
  settle(node, held);
  if (PrefixIndex::is_root(parent)) return;
  Held& before = held_.at(parent);
  --before.num_children;
  settle(parent, before);
}

}  // namespace quire
