// OperationDriver: runs one parsed operation for a session and writes its response. One thread at a time (the
// session's io thread). Destroying it early aborts what it submitted.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>

#include "server/api/common/operation.h"
#include "server/ops/stream_store.h"
#include "server/run/operation_run.h"
#include "server/state/server_state.h"
#include "server/wire/response.h"
#include "server/wire/stream_ping.h"
#include "server/wire/transport.h"

namespace quire {

class OperationDriver {
 public:
  OperationDriver(ServerState& state, Transport& transport, Operation& operation, ResponseFraming framing,
                  std::chrono::milliseconds write_timeout);
  ~OperationDriver();
  // Does what OperationRun::admit() does. Called before run().
  void admit(QuotaTable::Lease& lease, ReservedPlace place, std::int64_t list_window) {
    run_.admit(lease, std::move(place), list_window);
  }
  // Sends a comment line when nothing else was sent on a stream for this long; 0: never.
  void ping_every(std::chrono::milliseconds interval);
  // Saves the stream's events, so that the client can reconnect. Without a reader for `window`, the operation is
  // aborted. Called before run().
  void keep(std::shared_ptr<SavedStream> saved, std::chrono::milliseconds window);
  OperationDriver(const OperationDriver&) = delete;
  OperationDriver& operator=(const OperationDriver&) = delete;

  struct Outcome {
    std::optional<Response> response;  // to be written by the session; nullopt after a stream
    bool has_more = false;             // `response` has the first part of the body; send_parts() sends it all
    bool connection_ok = true;         // the stream's end was written; another request can follow
    int status = 200;
    bool has_begun = false;  // at least one of its requests was accepted
    OperationTimes times;
  };
  // Runs the operation. A stream's last bytes are left to end_stream(), so that the request is counted before the
  // client sees its end.
  boost::asio::awaitable<Outcome> run(Clock::time_point arrival);
  // Sends a long response. Each part is made after the client has read the previous ones.
  boost::asio::awaitable<void> send_parts(Outcome& outcome);
  // Writes the stream's last bytes. To be called after run(), with its result.
  boost::asio::awaitable<void> end_stream(Outcome& outcome);

 private:
  boost::asio::awaitable<Outcome> drive(Clock::time_point arrival);
  void detach();
  boost::asio::awaitable<bool> send(std::string_view data);
  boost::asio::awaitable<bool> send_ping();
  // `out`: the events to send before the error.
  void fail(Outcome& outcome, const Error& error, std::string out = {});

  ServerState& state_;
  Transport& transport_;
  Operation& operation_;
  ResponseFraming framing_;
  std::chrono::milliseconds write_timeout_;
  OperationRun run_;
  bool head_sent_ = false;
  std::optional<std::string> last_;     // a stream's last events, not written yet
  std::shared_ptr<SavedStream> saved_;  // null: events are not saved
  std::chrono::milliseconds window_{0};
  std::shared_ptr<boost::asio::steady_timer> expiry_;  // null: the client is connected
  std::shared_ptr<StreamPing> ping_;                   // null: no pings
};

}  // namespace quire
