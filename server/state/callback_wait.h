// wait_for_callback: suspends a session until an operation on another thread calls back. Runs on the session's io
// thread and blocks none. It ends with the callback, the client's disconnect, the time limit or the drain's deadline,
// whichever is first.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <optional>

#include "server/state/server_state.h"
#include "server/wire/transport.h"

namespace quire {

struct WaitResult {
  bool client_gone = false;
  std::optional<Error> error;  // the reported error, or why the wait ended early
};

// Starts an operation, which may call back immediately, from any thread, even after the wait ended.
using CallbackStart = std::function<void(std::function<void(std::optional<Error>)> done)>;
inline constexpr std::optional<std::chrono::milliseconds> kUnlimitedWait;

boost::asio::awaitable<WaitResult> wait_for_callback(ServerState& state, Transport& transport, CallbackStart begin,
                                                     std::optional<std::chrono::milliseconds> longest);

}  // namespace quire
