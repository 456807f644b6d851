// RequestBody: the body of one request as it arrives: read, passed on or skipped, within its bounds of bytes, time and
// shared memory. One thread (the connection's). Invariant: bytes are charged to the client from the first one until
// release(). A function that refuses the body has answered the client.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>
#include <string>

#include "server/session/exchange.h"
#include "server/wire/client_budget.h"
#include "server/wire/request_parser.h"

namespace quire {

class RequestBody {
 public:
  // `parser`: it has read the exchange's head.
  RequestBody(Exchange& exchange, RequestParser& parser) : exchange_(exchange), parser_(parser) {}
  RequestBody(const RequestBody&) = delete;
  RequestBody& operator=(const RequestBody&) = delete;

  // nullopt: the client left, or was refused.
  boost::asio::awaitable<std::optional<std::string>> read();
  // Consumes the bytes. Returns false to refuse the rest of the body.
  using Drain = std::function<boost::asio::awaitable<bool>(std::string& bytes)>;
  // Passes the body on piece by piece. False: the client left, was refused, or `drain` returned false.
  boost::asio::awaitable<bool> pass_on(std::size_t max_bytes, const Drain& drain);
  // Skips the body, then responds. A malformed body is refused instead, since the beginning of the next request is
  // unknown.
  boost::asio::awaitable<bool> respond_unread(Response response);
  // Refuses bytes that follow a request with "Connection: close". Returns whether there were any.
  boost::asio::awaitable<bool> refuse_further_bytes();
  bool has_arrived() const { return parser_.done(); }
  // To be called once the body is parsed and destroyed.
  void release() { charge_.reset(); }

 private:
  boost::asio::awaitable<bool> take(std::string* body, const Drain* drain = nullptr);
  boost::asio::awaitable<bool> check_end();
  boost::asio::awaitable<bool> charge(std::size_t num_bytes, std::string& body);
  boost::asio::awaitable<void> refuse_as_parser();

  Exchange& exchange_;
  RequestParser& parser_;
  std::optional<ClientBudget::Charge> charge_;
};

}  // namespace quire
