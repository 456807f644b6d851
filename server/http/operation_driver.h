// OperationDriver: runs one parsed operation for a session: submits its requests, feeds it their events, writes what
// comes out. One thread at a time (the session's io thread). Leaving it early, in whatever way, aborts what it
// submitted.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>
#include <vector>

#include "server/api/common/operation.h"
#include "server/http/mailbox.h"
#include "server/http/response.h"
#include "server/http/server_state.h"
#include "server/http/stream_ping.h"
#include "server/http/transport.h"
#include "server/ops/stream_store.h"

namespace quire {

// A place in a model's queue that was taken before the request was parsed. The queue outlives its ticket.
class ReservedPlace {
 public:
  ReservedPlace() = default;
  ReservedPlace(std::shared_ptr<RequestQueue> queue, QueueTicket ticket)
      : queue_(std::move(queue)), ticket_(std::move(ticket)) {}
  ReservedPlace(ReservedPlace&&) noexcept = default;
  ReservedPlace& operator=(ReservedPlace&& other) noexcept {
    ticket_ = std::move(other.ticket_);
    queue_ = std::move(other.queue_);
    return *this;
  }
  ~ReservedPlace() = default;

  bool has() const { return queue_ != nullptr; }
  // The ticket, where it is one of this queue; else an empty one.
  QueueTicket take(const std::shared_ptr<RequestQueue>& queue) {
    return queue_ == queue ? std::move(ticket_) : QueueTicket();
  }

 private:
  std::shared_ptr<RequestQueue> queue_;
  QueueTicket ticket_;
};

class OperationDriver {
 public:
  OperationDriver(ServerState& state, Transport& transport, Operation& operation, ResponseFraming framing,
                  std::chrono::milliseconds write_timeout);
  ~OperationDriver();
  // Whose quota its sequences count for, the place in the queue that it has already, if any, and how many sequences of
  // a list may wait or run at once. Before run().
  void admit(QuotaTable::Lease& lease, ReservedPlace place, std::int64_t list_window);
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
  boost::asio::awaitable<Outcome> drive();
  Result<void> submit_more();
  Result<void> submit_next();
  void detach();
  void abort_open();
  void take_mail(std::vector<Mail> mail, std::string& out);
  void note_progress(const OutputEvent& event);
  boost::asio::awaitable<bool> send(std::string_view data);
  boost::asio::awaitable<bool> send_ping();
  // `out`: what the stream still has to tell before it.
  void fail(Outcome& outcome, const Error& error, std::string out = {});
  bool is_over() const { return num_sequences_ == 0 && num_submitted_ == open_.size(); }
  void close(std::size_t index);

  ServerState& state_;
  Transport& transport_;
  Operation& operation_;
  ResponseFraming framing_;
  std::chrono::milliseconds write_timeout_;
  std::shared_ptr<Mailbox> mailbox_;
  QuotaTable::Lease* lease_ = nullptr;  // null: nothing is counted
  ReservedPlace place_;
  std::int64_t list_window_ = 1;
  std::vector<bool> open_;          // by request: submitted and still wanted
  std::size_t num_submitted_ = 0;   // of the requests, in their order: a list is submitted some at a time
  std::int64_t num_sequences_ = 0;  // of the open ones
  bool head_sent_ = false;
  std::optional<std::string> last_;     // a stream's last events, not written yet
  std::shared_ptr<SavedStream> saved_;  // null: nothing is kept
  std::chrono::milliseconds window_{0};
  std::shared_ptr<boost::asio::steady_timer> expiry_;  // null: the client is there
  std::shared_ptr<StreamPing> ping_;                   // null: none
  OperationTimes times_;
  Clock::time_point last_token_{};
  const std::string model_;  // its name, for the metrics
  Metrics::GapRecorder gaps_;
};

}  // namespace quire
