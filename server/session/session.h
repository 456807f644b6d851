// Session: one request of a connection: reads its head, passes the gate and hands over to one kind of answer.
// Connection: a connection as one coroutine with one session after another; between two of them it holds only its
// transport. Both run on the connection's io thread. Invariants: a request is answered exactly once; when the coroutine
// ends early, its requests in the engine are aborted.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "server/state/server_state.h"
#include "server/wire/request_parser.h"

namespace quire {

class Exchange;
class RequestBody;
class Transport;

class Session {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `on_admin`: the connection arrived on the admin listener.
  Session(ServerState& state, std::shared_ptr<Transport> transport, bool on_admin);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns false if no request arrived before `idle_until`, or if it was refused.
  boost::asio::awaitable<bool> read_head(Time idle_until);
  // Answers the request whose head was read. Returns whether the connection can take another request.
  boost::asio::awaitable<bool> serve();

 private:
  boost::asio::awaitable<void> refuse_head(const HttpRefusal& refusal);
  boost::asio::awaitable<bool> answer(Exchange& exchange, RequestBody& body);
  boost::asio::awaitable<bool> hand_over(Exchange& exchange, RequestBody& body);

  ServerState& state_;
  const std::shared_ptr<Transport> transport_;
  const bool on_admin_;
  const std::shared_ptr<const Settings> settings_;  // for reading the head; answers take the current ones
  RequestParser parser_;
};

class Connection {
 public:
  Connection(ServerState& state, std::shared_ptr<Transport> transport, bool on_admin)
      : state_(state), transport_(std::move(transport)), on_admin_(on_admin), fresh_(std::in_place, state.num_fresh) {}

  boost::asio::awaitable<void> run();

 private:
  // Returns false if the connection can take no further request.
  boost::asio::awaitable<bool> serve_next(Session::Time idle_until);

  ServerState& state_;
  const std::shared_ptr<Transport> transport_;
  const bool on_admin_;
  std::optional<Counted> fresh_;  // set until the first request
};

}  // namespace quire
