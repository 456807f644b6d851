// RedisStore: KV records in a Redis or Valkey server shared with other daemons. The engine's thread calls it and never
// waits; its thread `kv-net` owns the connection. Invariants: every request is answered within a second, as not found
// if the store does not answer; a store that fails to answer in time, or breaks the protocol, is left alone for a pause
// that doubles each time, in which no request waits for it; a record is handed over only if its checksum, key and
// fingerprint are right; at most max_bytes_in_flight wait to be written. Records are not compressed: no link of 1
// Gbit/s gains by it (tests/performance.md).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/kv/tiers/shared_store.h"
#include "server/fleet/fleet_options.h"
#include "server/fleet/redis_link.h"

namespace quire {

class RedisStore final : public SharedStore {
 public:
  // `ready` is called on the store's thread. Throws StartupError like check_store_options(), but not for a store that
  // cannot be reached.
  RedisStore(const RedisStoreOptions& options, std::function<void()> ready);
  RedisStore(const RedisStore&) = delete;
  RedisStore& operator=(const RedisStore&) = delete;

  bool is_up() const override { return link_.is_up(); }
  bool can_take(std::int64_t payload_bytes) override;
  void write(TierEvents write) noexcept override;
  void read(TierEvents read) noexcept override;
  void look_up(KeyLookUps look_up) noexcept override;
  void take_events(TierEvents& out, std::size_t most) noexcept override;
  void take_look_ups(KeyLookUps& out) noexcept override;
  bool wait_idle(std::chrono::steady_clock::time_point until) override;
  void drop_writes() override;
  SharedStoreStats stats() const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Asking {  // a look-up, until the last reply
    KeyLookUps::iterator look_up;
    std::size_t num_awaited;
    Clock::time_point sent;
    bool is_answered = false;  // by any node
  };

  void wake() noexcept;
  // The store's thread calls everything below.
  void note_up();
  void note_failed();
  void fail_queued();
  void pump();
  bool send_next();
  void send_read(TierEvents::iterator read);
  void send_write(TierEvents::iterator write);
  void send_look_up(KeyLookUps::iterator asked);
  // Null: no reply came.
  void take_read(TierEvents::iterator read, const RespReply* reply, Clock::time_point sent);
  void take_write(TierEvents::iterator write, const RespReply* reply);
  void take_size(Asking& asking, std::size_t place, const RespReply* reply);
  void note_refusal(const RespReply* reply);
  void post(TierEvents::iterator event);
  std::string name_of(const ChainKey& fingerprint, const ChainKey& key) const;

  const RedisStoreOptions options_;
  const std::function<void()> ready_;
  Clock::time_point last_reply_{};
  std::int64_t bytes_on_the_wire_ = 0;  // payload of writes without a reply
  TierEvents asked_;                    // sent to the store and not answered
  KeyLookUps looking_up_;
  bool said_refused_ = false;

  mutable std::mutex mutex_;  // guards all below but the link
  std::condition_variable changed_;
  TierEvents reads_;
  TierEvents writes_;
  KeyLookUps look_ups_;
  TierEvents events_;
  KeyLookUps answers_;
  std::int64_t num_queued_bytes_ = 0;  // payload of writes without a reply, queued ones included
  std::int64_t num_asked_ = 0;         // commands not answered
  Clock::time_point refused_until_{};
  SharedStoreStats stats_;
  RedisLink link_;  // last: its thread uses this object at once
};

}  // namespace quire
