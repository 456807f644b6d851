// RecordTier: content of nodes as records outside of the process: in a folder (DiskTier), or in a store that other
// processes share (SharedTier). Engine thread only; neither waits for its files or sockets, which a thread of their own
// serves. Invariant: a record is known by the node that it was made of or found for, whose parent and tokens are
// compared before its payload is handed over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/index/prefix_index.h"
#include "core/kv/tiers/tier_event.h"

namespace quire {

class RecordTier {
 public:
  virtual ~RecordTier() = default;

  virtual bool contains(PrefixNode node) const = 0;
  virtual bool is_readable(PrefixNode node) const = 0;
  virtual void touch(PrefixNode node) = 0;
  // Of a node that is here.
  virtual std::int64_t payload_bytes(PrefixNode node) const = 0;

  // Whether a record with so large a payload would be taken now.
  virtual bool can_take(std::int64_t payload_bytes) = 0;
  // Whether there is room for it, or what leaves for it is not `kept`.
  virtual bool makes_room(std::int64_t payload_bytes, std::span<const PrefixNode> kept) const = 0;
  // Begins to write a full node that is not here, or of which a smaller payload is; false where the tier then has
  // nothing of it: there is no room, or no memory.
  virtual bool put(PrefixIndex& index, PrefixNode node, BlockPayload payload) = 0;
  // Begins to read a readable node, which stays in the tree until it has arrived. Where memory fails, that is thrown
  // and nothing has changed.
  virtual void read(PrefixIndex& index, PrefixNode node) = 0;

  struct Arrived {
    PrefixNode node;
    BlockPayload payload;  // null: the record was damaged or is gone
    double seconds = 0.0;  // that reading took
  };
  // What happened since; a bounded part of it. True where more may be waiting. What has arrived without memory to hand
  // it over comes with a later call. The user that read() added to a node is the caller's to drop once it has arrived.
  virtual bool receive(PrefixIndex& index, std::vector<Arrived>& arrived);

  // Until what was asked is done; false where `until` came first.
  virtual bool wait_idle(std::chrono::steady_clock::time_point until) = 0;
  virtual void drop_writes() = 0;  // what waits to be written is lost

 protected:
  // Moves at most `most` events of the thread that serves the tier to the end of `out`.
  virtual void fetch_events(TierEvents& out, std::size_t most) noexcept = 0;
  // Appends at most one element to `arrived`, for which there is room.
  virtual void take_event(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived) = 0;

 private:
  TierEvents events_;  // fetched, and not taken where memory failed
};

}  // namespace quire
