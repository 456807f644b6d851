// Exchange: one request of a connection, from its head to the end of its answer: the state that its answers share, and
// the functions that send whole responses. One thread (the connection's). Invariant: a request is answered once.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "server/session/request_account.h"
#include "server/wire/request_head.h"
#include "server/wire/response.h"
#include "server/wire/transport.h"

namespace quire {

class Exchange {
 public:
  // `on_admin`: the connection arrived on the admin listener.
  Exchange(ServerState& state, std::shared_ptr<Transport> transport, RequestHead head, bool on_admin);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  ServerState& state() const { return state_; }
  const std::shared_ptr<Transport>& transport() const { return transport_; }
  const RequestHead& head() const { return head_; }
  bool on_admin() const { return on_admin_; }
  RequestAccount& account() { return account_; }
  const ServerOptions& options() const { return account_.options(); }
  const std::string& request_id() const { return account_.request_id(); }
  Call new_call() const { return account_.new_call(head_, on_admin_); }
  // A log record with this head and the present time.
  RequestRecord new_record(std::string request_id) const;

  // Asks the gate for admission. `resumes`: a repeated request, which was counted the first time.
  void pass_gate(bool resumes);
  // Whether the stream is saved: only a client that names its request can resume it.
  bool keeps_stream() const;
  // Whether the client repeats a request to get the rest of its stream.
  bool resumes() const;

  ResponseFraming framing() const;
  // Returns false if the connection can take no further request, like all functions that answer.
  boost::asio::awaitable<bool> respond(Response response);
  boost::asio::awaitable<bool> respond(const Error& error) { return respond(error_response(error)); }
  // Answers, and lets the connection end.
  boost::asio::awaitable<void> refuse(int status, const char* code, std::string_view message);
  // Sends the error unless some of the answer was sent: closing the connection then shows that the rest is missing.
  boost::asio::awaitable<void> end_failed(const Error& error);
  boost::asio::awaitable<bool> write(std::string_view bytes) {
    return transport_->write(bytes, options().timeout.write);
  }
  void count(int status) { account_.count(status); }
  void close_after() { keeps_alive_ = false; }
  bool keeps_alive() const { return keeps_alive_; }

 private:
  ServerState& state_;
  const std::shared_ptr<Transport> transport_;
  const RequestHead head_;
  const bool on_admin_;
  const std::uint64_t num_written_before_;  // bytes of the connection's earlier answers
  RequestAccount account_;
  bool keeps_alive_;
};

}  // namespace quire
