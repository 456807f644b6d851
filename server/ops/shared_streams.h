// SharedStreams: the functions by which sessions share the origins of streams with other daemons, so that one of them
// can continue a stream whose daemon has died. Set by the module `fleet`; any thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "server/api/common/stream_origin.h"

namespace quire {

struct SharedStreams {
  struct Taken {
    std::optional<StreamOrigin> origin;  // the stream is this daemon's from now on
    bool is_elsewhere = false;           // another daemon runs it
  };

  std::chrono::milliseconds lease{0};  // time after which a daemon without a heartbeat counts as gone
  // Begins or ends a stream's record, which is kept for `window` longer.
  std::function<void(const std::string& name, const StreamOrigin& origin, std::chrono::milliseconds window)> begin;
  std::function<void(const std::string& name)> end;
  // `done` is called once, on a thread of the fleet's.
  std::function<void(const std::string& name, std::chrono::milliseconds window, std::function<void(Taken)> done)> take;
};

}  // namespace quire
