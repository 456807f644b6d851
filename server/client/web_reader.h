// WebReader: one request of this process by blocking calls; follows redirects and reads the reply's body in pieces. One
// thread at a time. Invariants: the Authorization field goes to the first URL's origin only; a redirect never leads
// from https to http; a stop ends every call within a moment, except for a name that is being resolved.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/client/http_exchange.h"

namespace quire {

struct WebRequest {
  HttpUrl url;
  std::string method = "GET";
  std::vector<std::pair<std::string, std::string>> fields = {};
  std::string authorization = {};  // empty: none is sent
  int max_redirects = 10;          // 0: redirects are not followed
  bool stays_at_origin = false;    // a redirect to another origin is an error
  // Decides whether to connect to an address of the name; null: any address.
  std::function<bool(const std::string& address)> accepts_address = {};
};

class WebReader {
 public:
  // `patience`: limit for each reply's head and each further piece of a body.
  WebReader(std::stop_token stop, std::chrono::milliseconds patience);
  ~WebReader();
  WebReader(const WebReader&) = delete;
  WebReader& operator=(const WebReader&) = delete;

  // Returns the status of the last reply.
  Result<int> open(const WebRequest& request);
  // A field of that reply's head.
  std::string_view field(std::string_view name) const;
  // The next piece of the body, valid until the next call; empty at its end. Nothing: none arrived within `time`.
  Result<std::optional<std::string_view>> read_within(std::chrono::milliseconds time);
  // The rest of the body; an error if it exceeds `most` bytes.
  Result<std::string> read_rest(std::size_t most);

 private:
  Result<int> send(const ClientRequest& request);

  const std::stop_token stop_;
  const std::chrono::milliseconds patience_;
  boost::asio::io_context context_;
  std::unique_ptr<WebClient> client_;
  std::unique_ptr<HttpExchange> exchange_;
  bool is_reading_ = false;                       // a read is under way
  std::optional<Result<std::string_view>> read_;  // result of that read
};

}  // namespace quire
