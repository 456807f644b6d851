// SharedStore: records of KV blocks in a store that other processes use, too. Called by the engine's thread, which
// waits for it in wait_idle() only; a thread of the store's own executes the requests. Invariants: each write, read and
// look-up is answered within a second, however slow or absent the store is; its answers are checked before they are
// used.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "core/kv/tiers/tier_event.h"

namespace quire {

// Asks which records the store holds; the answer is filled into the same object.
struct KeyLookUp {
  std::uint64_t id = 0;
  ChainKey fingerprint{};
  std::vector<ChainKey> keys{};
  std::vector<std::int64_t> record_bytes{};  // size for each key, 0: absent; empty: no answer
  double seconds = 0.0;                      // time from question to answer
};
using KeyLookUps = std::list<KeyLookUp>;

// Counts since the store was made, one word each, as in EngineStats.
struct SharedStoreStats {
  std::uint64_t is_up = 0;         // 1: it answers
  std::uint64_t num_waiting = 0;   // records that are to be written and are not
  std::uint64_t num_failures = 0;  // times that it was given up for a while
  std::uint64_t num_written = 0;   // records
  std::uint64_t num_lost = 0;      // records that were to be written
  std::uint64_t num_read = 0;      // records
  std::uint64_t num_missed = 0;    // records that were asked for and not there, or damaged
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_read = 0;
};

class SharedStore {
 public:
  virtual ~SharedStore() = default;

  // Whether it is worth asking now.
  virtual bool is_up() const = 0;
  // Whether a record with such a payload would be taken: not if too much is queued, or the store is full.
  virtual bool can_take(std::int64_t payload_bytes) = 0;
  // Each call takes one event, as in TierFolder; a read needs the record's fingerprint beside the key.
  virtual void write(TierEvents write) noexcept = 0;
  virtual void read(TierEvents read) noexcept = 0;
  virtual void look_up(KeyLookUps look_up) noexcept = 0;
  // Moves at most `most` events to the end of `out`, and all look-ups that are answered.
  virtual void take_events(TierEvents& out, std::size_t most) noexcept = 0;
  virtual void take_look_ups(KeyLookUps& out) noexcept = 0;

  // Until everything asked so far is done; false where `until` came first.
  virtual bool wait_idle(std::chrono::steady_clock::time_point until) = 0;
  virtual void drop_writes() = 0;
  virtual SharedStoreStats stats() const = 0;
};

// Makes an engine's store; `ready` is called on the store's thread when there is something to take.
using SharedStoreFactory = std::function<std::unique_ptr<SharedStore>(std::function<void()> ready)>;

}  // namespace quire
