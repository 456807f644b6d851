// SharedStream: a stream's record in the fleet's store. It exists while this daemon runs the stream, so that another
// daemon can continue it. One thread. shared_name() and new_origin(): any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "server/api/common/operation.h"
#include "server/ops/shared_streams.h"
#include "server/state/server_state.h"

namespace quire {

class SharedStream {
 public:
  SharedStream(ServerState& state, std::string name, const StreamOrigin& origin, std::chrono::milliseconds window);
  ~SharedStream();
  SharedStream(const SharedStream&) = delete;
  SharedStream& operator=(const SharedStream&) = delete;

 private:
  const SharedStreams* const streams_;
  const std::string name_;
};

// A stream's name: equal on every daemon for the same request of the same key, and for no other.
std::string shared_name(const Call& call);
// Null: no fleet shares streams.
std::shared_ptr<const StreamOrigin> new_origin(const ServerState& state);

}  // namespace quire
