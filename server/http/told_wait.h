// wait_until_told: a session waits for something that goes on on another thread, without holding one itself. Runs on
// the session's io thread; whatever comes first ends the wait: being told, the client's leaving, the time, or the
// drain's cut.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>

#include "server/http/server_state.h"
#include "server/http/transport.h"

namespace quire {

struct Waited {
  bool client_gone = false;
  std::optional<Error> error;  // the reported error, or why the wait ended
};

// `begin` starts it and may call back immediately, from any thread, even after the wait ended.
boost::asio::awaitable<Waited> wait_until_told(ServerState& state, Transport& transport,
                                               std::function<void(std::function<void(std::optional<Error>)>)> begin,
                                               std::optional<std::chrono::milliseconds> longest);

}  // namespace quire
