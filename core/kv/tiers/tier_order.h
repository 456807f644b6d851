// TierOrder: the nodes that a tier below the pool holds, their sizes, and the order in which they leave: nodes without
// successors in the tier first, and among those the least recently used. Engine thread only. Invariants: a node whose
// content has not arrived (is_there is false) does not leave; only add() allocates memory, and if that fails nothing
// has changed.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/kv/index/prefix_index.h"

namespace quire {

class TierOrder {
 public:
  void add(PrefixNode node, PrefixNode parent, std::int64_t num_bytes, bool is_there);
  void set_there(PrefixNode node);
  void touch(PrefixNode node);
  void remove(PrefixNode node);

  bool contains(PrefixNode node) const { return find(node) != nullptr; }
  bool is_there(PrefixNode node) const { return find(node) != nullptr && find(node)->is_there; }
  // The node that leaves next; kNoNode where none can.
  PrefixNode next_to_leave() const { return leaving_.empty() ? kNoNode : leaving_.begin()->second; }
  // Whether `num_bytes` more fit `max_bytes`, or fit after evicting nodes none of which is in `kept`.
  bool makes_room(std::int64_t num_bytes, std::int64_t max_bytes, std::span<const PrefixNode> kept) const;
  // Calls `leave` with the node to evict next, which it must remove(), until `num_bytes` more fit `max_bytes`. False if
  // no node can leave, or not even an empty tier has the room.
  template <class Leave>
  bool evict_until_fits(std::int64_t num_bytes, std::int64_t max_bytes, const Leave& leave) {
    if (num_bytes > max_bytes) return false;
    while (num_bytes_ + num_bytes > max_bytes) {
      const PrefixNode leaving = next_to_leave();
      if (leaving == kNoNode) return false;
      leave(leaving);
    }
    return true;
  }
  std::int64_t num_bytes() const { return num_bytes_; }
  std::int64_t size() const { return size_; }

 private:
  using Leaving = std::set<std::pair<std::uint64_t, PrefixNode>>;
  struct Held {
    PrefixNode parent = kNoNode;
    std::int64_t num_bytes = 0;
    std::uint64_t last_use = 0;
    std::int32_t num_children = 0;  // in the tier; a node may have some without being in it
    bool is_held = false;
    bool is_there = false;
    Leaving::node_type place{};  // its place in leaving_ while it cannot leave
  };

  const Held* find(PrefixNode node) const;
  void settle(PrefixNode node, Held& held);
  void stop_leaving(PrefixNode node, Held& held);
  static bool can_leave(const Held& held) { return held.is_there && held.num_children == 0; }

  std::unordered_map<PrefixNode, Held> held_;
  Leaving leaving_;  // nodes that can leave, by last use
  std::uint64_t num_uses_ = 0;
  std::int64_t num_bytes_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace quire
