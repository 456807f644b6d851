// OperationRun: runs an operation in the engine, without a socket: submits its requests and feeds it their events. A
// session's driver writes the response, a batch stores it. One thread at a time (its executor's). Destroying
// it, in any state, aborts what it submitted.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/common/operation.h"
#include "server/metrics/metrics.h"
#include "server/ops/keys/quota.h"
#include "server/run/reserved_place.h"
#include "server/state/server_state.h"
#include "server/wire/mailbox.h"

namespace quire {

class OperationRun {
 public:
  OperationRun(ServerState& state, const boost::asio::any_io_executor& executor, Operation& operation);
  ~OperationRun() { abort(); }
  OperationRun(const OperationRun&) = delete;
  OperationRun& operator=(const OperationRun&) = delete;

  // Sets the lease of quota that its sequences count against, its place in the queue, and how many sequences of a list
  // may wait or run at once. Before begin().
  void admit(QuotaTable::Lease& lease, ReservedPlace place, std::int64_t list_window);

  // Makes long answers on text threads, charged to this client; otherwise the run's own thread makes them.
  void use_text_threads(std::string client) { client_ = std::move(client); }

  // Submits the first requests.
  Result<void> begin(Clock::time_point arrival);
  bool is_over() const { return num_sequences_ == 0 && num_submitted_ == open_.size(); }

  struct Progress {
    bool interrupted = false;    // the mailbox was interrupted, with `error` or without one
    std::optional<Error> error;  // the operation failed
  };
  // Waits for events, feeds them to the operation and appends the stream's text to `out`. Not called after the end.
  boost::asio::awaitable<Progress> advance(std::string& out);
  // Call the operation's begin() and finish_part(). Errors: out of memory.
  boost::asio::awaitable<Result<void>> begin_answer(std::string& out);
  boost::asio::awaitable<Result<bool>> finish_part(std::string& out);
  // Bytes that wait for a slow client.
  std::int64_t num_waiting_bytes() const { return mailbox()->num_bytes() + operation_.answer_size().num_kept; }
  void abort();

  const std::shared_ptr<Mailbox>& mailbox() const { return reader_.mailbox(); }
  const OperationTimes& times() const { return times_; }

 private:
  Result<void> submit_more();
  Result<void> submit_next();
  // Runs `work`, on a text thread if the operation has a long text to make.
  boost::asio::awaitable<Result<bool>> make_text(std::function<bool()> work);
  bool makes_long_text() const;
  void take_mail(std::vector<Mail> mail, std::string& out);
  void note_progress(std::size_t index, const OutputEvent& event);
  void close(std::size_t index);

  ServerState& state_;
  const boost::asio::any_io_executor executor_;
  Operation& operation_;
  MailboxReader reader_;
  QuotaTable::Lease* lease_ = nullptr;  // null: nothing is counted
  ReservedPlace place_;
  std::int64_t list_window_ = 1;
  std::string client_;              // empty: no text threads
  std::vector<bool> open_;          // by request: submitted and still wanted
  std::size_t num_submitted_ = 0;   // requests submitted so far, in their order
  std::int64_t num_sequences_ = 0;  // sequences of the open requests
  OperationTimes times_;
  std::vector<std::vector<std::optional<Clock::time_point>>> last_tokens_;  // by request and choice
  const std::string model_;                                                 // its name, for the metrics
  Metrics::GapRecorder gaps_;
};

}  // namespace quire
