// BackgroundRun: an operation that continues without its client's session. Its events are saved for readers. Its
// response is stored at the beginning, as one that failed, and again at its end. One thread at a time (its executor's).
// Invariants: it counts against its key's quota and the queue like any request; a drain waits for it, and cuts it at
// the deadline.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>

#include "server/ops/keys/quota.h"
#include "server/run/operation_run.h"
#include "server/state/server_state.h"

namespace quire {

class SavedStream;

class BackgroundRun {
 public:
  BackgroundRun(ServerState& state, boost::asio::any_io_executor executor, std::unique_ptr<Operation> operation,
                std::string key_name);
  ~BackgroundRun();
  BackgroundRun(const BackgroundRun&) = delete;
  BackgroundRun& operator=(const BackgroundRun&) = delete;

  // Submits the operation; returns an error if the queue is full.
  Result<void> begin(QuotaTable::Lease lease, ReservedPlace place, Clock::time_point arrival);
  // The response that the client gets immediately.
  std::string first_body() const { return operation_->snapshot(); }
  // Starts the run, which then continues by itself. To be called after begin().
  static void start(std::shared_ptr<BackgroundRun> run);

  const std::shared_ptr<SavedStream>& stream() const { return saved_; }  // null: it is not streamed

 private:
  boost::asio::awaitable<void> run();
  void save(std::string& out);
  boost::asio::awaitable<void> end(const OperationRun::Progress* failure, std::string& out);
  void fail(const Error& error, std::string& out);
  void give_up();
  void note_end();

  ServerState& state_;
  const boost::asio::any_io_executor executor_;
  const std::unique_ptr<Operation> operation_;
  const std::string id_;
  const std::string key_name_;
  QuotaTable::Lease lease_;
  OperationRun run_;       // destroyed before what it uses
  bool is_ended_ = false;  // the response's end is stored
  std::shared_ptr<SavedStream> saved_;
};

}  // namespace quire
