// HttpExchange: one request of a WebClient and its reply, whose body is read in pieces as they arrive. One thread at a
// time: its executor's. Must not outlive its client.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <string_view>

#include "server/client/web_client.h"

namespace quire {

class HttpExchange {
 public:
  HttpExchange(boost::asio::any_io_executor executor, const WebClient& client);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // Sends the request and reads the reply's head; returns the status. The whole exchange must end within `timeout`.
  boost::asio::awaitable<Result<int>> send(const ClientRequest& request, std::chrono::milliseconds timeout);
  // A field of the reply's head; empty if it has none of that name. To be called after send().
  std::string_view field(std::string_view name) const;
  // Restarts the time limit: the rest of the exchange must end within `timeout`.
  void extend(std::chrono::milliseconds timeout);
  // Closes the connection; an operation under way ends with an error.
  void close();
  // The next piece of the body, valid until the next call; empty at its end.
  boost::asio::awaitable<Result<std::string_view>> read_some();
  // The rest of the body.
  boost::asio::awaitable<Result<std::string>> read_rest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
