// call_batch_line: one line of a batch through the endpoint of its API, as an HTTP request of that endpoint goes: the
// same route, key, quotas, fields and engine, without a socket, and behind all other requests. Runs on the batch
// thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <stop_token>
#include <string>

#include "server/batch/active_batch.h"
#include "server/http/mailbox.h"
#include "server/http/server_state.h"

namespace quire {

// By which a call under way can be ended. Batch thread only.
class LineControl {
 public:
  void interrupt() {
    stop_.request_stop();
    if (mailbox_) mailbox_->interrupt(std::nullopt);
  }
  bool interrupted() const { return stop_.stop_requested(); }
  std::stop_token token() const { return stop_.get_token(); }
  // What a wait of the call reads; null: none.
  void set_mailbox(std::shared_ptr<Mailbox> mailbox) { mailbox_ = std::move(mailbox); }

 private:
  std::stop_source stop_;
  std::shared_ptr<Mailbox> mailbox_;
};

struct LineAnswer {
  int status = 200;
  std::string request_id;
  std::string body;
  std::optional<std::chrono::seconds> retry_after;  // not an answer: there was no room, or a failure that may pass
  bool is_failure = false;                          // with retry_after: something failed
};

// False where the key is not there any more: its batches wait. `key_name` empty: a server without keys.
bool may_run_lines(const Settings& settings, const std::string& key_name);

boost::asio::awaitable<LineAnswer> call_batch_line(ServerState& state, boost::asio::any_io_executor executor,
                                                   const BatchLine& line, LineControl& control);

}  // namespace quire
