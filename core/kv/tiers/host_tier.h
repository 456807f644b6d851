// HostTier: content of nodes that left the pool, in a bounded part of host memory: swapped-out blocks of preempted
// sequences, and the prefix cache of a device with little memory. Engine thread only.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/kv/tiers/tier_order.h"
#include "core/kv/tiers/tier_record.h"

namespace quire {

class HostTier {
 public:
  explicit HostTier(std::int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Stores a node's content of num_bytes in place of what it had; false if there is no room or memory for it, and then
  // nothing of the node is kept. `left(node)` is called for each other node that is evicted for it.
  template <class Left>
  bool put(PrefixNode node, PrefixNode parent, std::int64_t num_bytes, BlockPayload payload, Left&& left);
  void touch(PrefixNode node) { order_.touch(node); }
  bool contains(PrefixNode node) const { return order_.contains(node); }
  // Whether `num_bytes` more fit, or fit after evicting nodes none of which is in `kept`.
  bool makes_room(std::int64_t num_bytes, std::span<const PrefixNode> kept) const {
    return order_.makes_room(num_bytes, max_bytes_, kept);
  }
  const BlockPayload& payload(PrefixNode node) const { return payloads_.at(node); }  // the node must be here

  std::int64_t max_bytes() const { return max_bytes_; }
  std::int64_t num_bytes() const { return order_.num_bytes(); }
  std::int64_t num_blocks() const { return order_.size(); }

 private:
  const std::int64_t max_bytes_;
  TierOrder order_;
  std::unordered_map<PrefixNode, BlockPayload> payloads_;
};

template <class Left>
bool HostTier::put(PrefixNode node, PrefixNode parent, std::int64_t num_bytes, BlockPayload payload, Left&& left) {
  if (order_.contains(node)) {
    order_.remove(node);
    payloads_.erase(node);
  }
  const auto leave = [&](PrefixNode leaving) {
    order_.remove(leaving);
    payloads_.erase(leaving);
    left(leaving);
  };
  if (!order_.evict_until_fits(num_bytes, max_bytes_, leave)) return false;
  try {
    BlockPayload& kept = payloads_[node];
    order_.add(node, parent, num_bytes, true);
    kept = std::move(payload);
  } catch (const std::bad_alloc&) {
    payloads_.erase(node);
    return false;
  }
  return true;
}

}  // namespace quire
