// StreamSharer: the data by which another daemon continues a stream whose daemon has died: the origin of the answer,
// kept in a Redis or Valkey server while the stream runs and for a window after it. Any thread calls; its thread
// `stream-net` works. Invariants: a record belongs to one daemon, which runs the stream and renews a lease of its own;
// another daemon takes it only if that lease has run out or the stream has ended, and only its own daemon marks it as
// ended; a store that does not answer has no record.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "server/api/common/stream_origin.h"
#include "server/fleet/redis_link.h"
#include "server/ops/shared_streams.h"

namespace quire {

class StreamSharer {
 public:
  struct Options {
    RedisServer server;
    std::string prefix = "quire";            // prefix of all keys in the store
    std::chrono::milliseconds lease{2'000};  // renewed by this daemon while it lives
    std::chrono::milliseconds heartbeat{500};
  };
  explicit StreamSharer(const Options& options);
  ~StreamSharer();
  StreamSharer(const StreamSharer&) = delete;
  StreamSharer& operator=(const StreamSharer&) = delete;

  // Time after which a daemon without a heartbeat counts as gone.
  std::chrono::milliseconds lease() const { return options_.lease; }

  // Begins or ends a stream's record, which is kept for `window` longer.
  void begin(const std::string& name, const StreamOrigin& origin, std::chrono::milliseconds window) noexcept;
  void end(const std::string& name) noexcept;

  using Taken = SharedStreams::Taken;
  // `done` is called once, on the sharer's thread.
  void take(const std::string& name, std::chrono::milliseconds window, std::function<void(Taken)> done) noexcept;

 private:
  struct Active {
    std::string record;
    std::chrono::milliseconds window;
  };

  // The link's thread calls everything below.
  void beat();
  void renew();
  void write(const std::string& name, const Active& stream, bool only_if_absent);
  void check(const RespReply* reply);
  std::string key_of(const std::string& name) const { return prefix_ + "stream:" + name; }

  const Options options_;
  const std::string prefix_;  // contains a tag that keeps all keys on one cluster node
  const std::string id_;      // this daemon's random id
  std::map<std::string, Active> active_;
  RedisLink link_;  // last: its thread uses this object at once
};

}  // namespace quire
