// RequestBody: the body of one request as it arrives: read, passed on or skipped, within its bounds of bytes, time and
// shared memory. One thread (the connection's). Invariant: bytes are charged to the client from the first one until
// release(). Functions that return "refused" have answered the client.
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
  // Takes the bytes out of the string; false: the rest is not wanted.
  using Drain = std::function<boost::asio::awaitable<bool>(std::string& bytes)>;
  // Passes the body on piece by piece. False: the client left, was refused, or `drain` returned false.
  boost::asio::awaitable<bool> pass_on(std::size_t max_bytes, const Drain& drain);
  // Responds without interpreting the body. It is still read first: if it is malformed, the next request's beginning is
  // unknown, and this request is refused.
  boost::asio::awaitable<bool> respond_unread(Response response);
  // Returns true after refusing bytes that follow a closing request.
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
