// call_batch_line: runs one line of a batch like an HTTP request to its endpoint: the same route, key, quotas, fields
// and engine, without a socket, and at the lowest priority. Runs on the batch thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <stop_token>
#include <string>

#include "server/batch/active_batch.h"
#include "server/state/server_state.h"
#include "server/wire/mailbox.h"

namespace quire {

struct Settings;

// Ends a call that is under way. Batch thread only.
class LineControl {
 public:
  void interrupt() {
    stop_.request_stop();
    if (mailbox_) mailbox_->interrupt(std::nullopt);
  }
  bool interrupted() const { return stop_.stop_requested(); }
  std::stop_token token() const { return stop_.get_token(); }
  // The mailbox that the call waits on; null: none.
  void set_mailbox(std::shared_ptr<Mailbox> mailbox) { mailbox_ = std::move(mailbox); }

 private:
  std::stop_source stop_;
  std::shared_ptr<Mailbox> mailbox_;
};

struct LineAnswer {
  int status = 200;
  std::string request_id;
  std::string body;
  std::optional<std::chrono::seconds> retry_after;  // when to call the line again, which has no answer then
  bool is_failure = false;                          // with retry_after: counts as a failed attempt
};

// Returns false if the key was removed: its batches wait until it exists again. `key_name` is empty on a server without
// keys.
bool may_run_lines(const Settings& settings, const std::string& key_name);

boost::asio::awaitable<LineAnswer> call_batch_line(ServerState& state, boost::asio::any_io_executor executor,
                                                   const BatchLine& line, LineControl& control);

}  // namespace quire
