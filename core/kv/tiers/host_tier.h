// HostTier: content of nodes that left the pool, in host memory up to a bound: what a preempted sequence swaps out and
// back in, and the prefix cache of a device with little memory. Engine thread only.
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

  // Takes a node's content, in place of what it has of it, which counts num_bytes; false where it can have no room, or
  // there is no memory: then it has nothing of the node.
  // Each other node that leaves for it is given to `left(node)`.
  template <class Left>
  bool put(PrefixNode node, PrefixNode parent, std::int64_t num_bytes, BlockPayload payload, Left&& left);
  void touch(PrefixNode node) { order_.touch(node); }
  bool contains(PrefixNode node) const { return order_.contains(node); }
  // Whether there is room for so many bytes, or those that leave for it are not `kept`.
  bool makes_room(std::int64_t num_bytes, std::span<const PrefixNode> kept) const {
    return order_.makes_room(num_bytes, max_bytes_, kept);
  }
  const BlockPayload& payload(PrefixNode node) const { return payloads_.at(node); }  // of a node that is here

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
