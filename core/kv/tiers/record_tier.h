// RecordTier: content of nodes as records outside of the process: in a folder (DiskTier), or in a store that other
// processes share (SharedTier). Engine thread only; neither waits for its files or sockets, which a thread of their own
// serves. Invariant: a record is known by the node that it was made of or found for, whose parent and tokens are
// compared before its payload is handed over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/kv/index/prefix_index.h"
#include "core/kv/tiers/tier_event.h"
#include "core/kv/tiers/tier_order.h"

namespace quire {

class RecordTier {
 public:
  virtual ~RecordTier() = default;

  bool contains(PrefixNode node) const { return order_.contains(node); }
  bool is_readable(PrefixNode node) const { return order_.is_there(node); }
  bool is_being_written(PrefixNode node) const { return contains(node) && !is_readable(node); }
  void touch(PrefixNode node) { order_.touch(node); }
  // The node must be here.
  virtual std::int64_t payload_bytes(PrefixNode node) const = 0;

  // Whether a record with a payload of this size would be taken now.
  virtual bool can_take(std::int64_t payload_bytes) = 0;
  // Whether it fits, or fits after evicting nodes none of which is in `kept`.
  virtual bool makes_room(std::int64_t payload_bytes, std::span<const PrefixNode> kept) const = 0;
  // Begins to write a full node that is not here, or only with a smaller payload; false if there is no room or memory,
  // and then nothing of the node is kept.
  virtual bool put(PrefixIndex& index, PrefixNode node, BlockPayload payload) = 0;
  // Begins to read a readable node, which stays in the tree until the record has arrived. Throws std::bad_alloc without
  // memory, and then nothing has changed.
  virtual void read(PrefixIndex& index, PrefixNode node) = 0;

  struct Arrived {
    PrefixNode node;
    BlockPayload payload;  // null: the record was damaged or is gone
    double seconds = 0.0;  // time spent reading
  };
  // Handles a bounded number of events; true if more may be waiting. Records that arrive without memory to hand them
  // over come with a later call. The caller drops the user that read() added to a node once it has arrived.
  virtual bool receive(PrefixIndex& index, std::vector<Arrived>& arrived);

  // Waits until all requests are done; false if `until` came first.
  virtual bool wait_idle(std::chrono::steady_clock::time_point until) = 0;
  virtual void drop_writes() = 0;  // queued writes are lost

 protected:
  explicit RecordTier(TierKind kind) : kind_(kind) {}

  // The node's record is gone: drops the node, and from the tree if nothing else holds it.
  void forget(PrefixIndex& index, PrefixNode node);
  // Drops the node, which is out of the order.
  void strike(PrefixIndex& index, PrefixNode node);
  // Drops the derived tier's own data of the node.
  virtual void drop(PrefixNode node) = 0;

  // Moves at most `most` events of the thread that serves the tier to the end of `out`.
  virtual void fetch_events(TierEvents& out, std::size_t most) noexcept = 0;
  // Appends at most one element to `arrived`, for which there is room.
  virtual void take_event(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived) = 0;

  struct KeyHash {
    std::size_t operator()(const ChainKey& key) const { return key.low; }
  };
  TierOrder order_;
  std::unordered_map<ChainKey, PrefixNode, KeyHash> nodes_;    // by the keys of their records
  std::unordered_map<ChainKey, PrefixNode, KeyHash> reading_;  // nodes being read, by the keys of their records

 private:
  const TierKind kind_;
  TierEvents events_;  // fetched, and not taken where memory failed
};

}  // namespace quire
