// SocketAnswer: the Responses API over a WebSocket: each message of the client is a request, whose events are messages.
// Requests are answered one after another. One further message waits here; later ones stay unread. The connection's
// thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/session/exchange.h"
#include "server/wire/web_socket.h"

namespace quire {

struct SocketInbox;

class SocketAnswer {
 public:
  explicit SocketAnswer(Exchange& exchange) : exchange_(exchange) {}

  boost::asio::awaitable<bool> give();

 private:
  std::optional<Response> refusal() const;
  // `key_hash`: hash of the key that opened the connection; empty without a key.
  boost::asio::awaitable<void> answer_messages(SocketInbox& inbox, std::string key_hash);
  boost::asio::awaitable<void> answer_message(SocketInbox& inbox, WebSocket::Message message);
  // Returns an error if the request failed before its first event.
  boost::asio::awaitable<std::optional<Error>> answer_request(SocketInbox& inbox, RequestAccount& account,
                                                              WebSocket::Message message);
  Result<void> admit(RequestAccount& account);
  boost::asio::awaitable<std::optional<Error>> drive(SocketInbox& inbox, RequestAccount& account,
                                                     std::unique_ptr<Operation> operation, Clock::time_point arrival);
  boost::asio::awaitable<bool> send_events(SocketInbox& inbox, const std::string& events);

  Exchange& exchange_;
};

}  // namespace quire
