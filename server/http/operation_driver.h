// OperationDriver: runs one parsed operation for a session and writes what comes out of it. One thread at a time (the
// session's io thread). Destroying it early aborts what it submitted.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>

#include "server/api/common/operation.h"
#include "server/http/operation_run.h"
#include "server/http/response.h"
#include "server/http/server_state.h"
#include "server/http/stream_ping.h"
#include "server/http/transport.h"
#include "server/ops/stream_store.h"

namespace quire {

class OperationDriver {
 public:
  OperationDriver(ServerState& state, Transport& transport, Operation& operation, ResponseFraming framing,
                  std::chrono::milliseconds write_timeout);
  ~OperationDriver();
  // As OperationRun's. Before run().
  void admit(QuotaTable::Lease& lease, ReservedPlace place, std::int64_t list_window) {
    run_.admit(lease, std::move(place), list_window);
  }
  // Keeps the stream's events. A client that goes away does not end it then, but only once no client has come back for
  // it within `window`. Before run().
  // Sends a comment line where nothing else was sent on a stream of events for so long; 0: never.
  void ping_every(std::chrono::milliseconds interval);
  void keep(std::shared_ptr<SavedStream> saved, std::chrono::milliseconds window);
  OperationDriver(const OperationDriver&) = delete;
  OperationDriver& operator=(const OperationDriver&) = delete;

  struct Outcome {
    std::optional<Response> response;  // to be written by the session; nothing where a stream was
    bool connection_ok = true;         // a stream's end was written, so another request can follow
    int status = 200;
    bool finished = false;  // by itself, not by an error or the client's leaving
    OperationTimes times;
  };
  // All but a stream's last bytes: so that a request can be counted before its client knows that it is over.
  boost::asio::awaitable<Outcome> run(Clock::time_point arrival);
  // Writes them, if there was a stream. After run(), with what it returned.
  boost::asio::awaitable<void> end_stream(Outcome& outcome);

 private:
  boost::asio::awaitable<Outcome> drive(Clock::time_point arrival);
  void detach();
  boost::asio::awaitable<bool> send(std::string_view data);
  boost::asio::awaitable<bool> send_ping();
  // `out`: what the stream still has to tell before it.
  void fail(Outcome& outcome, const Error& error, std::string out = {});

  ServerState& state_;
  Transport& transport_;
  Operation& operation_;
  ResponseFraming framing_;
  std::chrono::milliseconds write_timeout_;
  OperationRun run_;
  bool head_sent_ = false;
  std::optional<std::string> last_;     // a stream's last events, not written yet
  std::shared_ptr<SavedStream> saved_;  // null: nothing is kept
  std::chrono::milliseconds window_{0};
  std::shared_ptr<boost::asio::steady_timer> expiry_;  // null: the client is there
  std::shared_ptr<StreamPing> ping_;                   // null: none
};

}  // namespace quire
