// WebSocket: text messages over a connection whose head was read: Beast's framing on a Transport. One thread at a time
// (the transport's io thread); one read() and one write() may be under way at once. Invariants: a message is charged to
// the budget of bodies as it arrives; a message above its bound ends the connection; nothing is compressed, and an idle
// connection keeps no message.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/wire/client_budget.h"
#include "server/wire/request_head.h"
#include "server/wire/transport.h"

namespace quire {

struct WebSocketLimits {
  std::size_t max_message = 0;
  std::int64_t max_queued_bytes = 0;          // limit for all bodies together
  std::chrono::milliseconds write_timeout{};  // longest time without progress
  std::chrono::milliseconds idle_timeout{};   // longest wait for a ping's answer
};

// Close codes of RFC 6455.
enum class CloseReason : std::uint16_t {
  kDone = 1000,
  kGoingAway = 1001,
  kUnsupported = 1003,
  kNotAllowed = 1008,
  kTooBig = 1009,
  kTryLater = 1013
};

class WebSocket {
 public:
  WebSocket(std::shared_ptr<Transport> transport, ClientBudget& budget, std::string client,
            const WebSocketLimits& limits);
  ~WebSocket();
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;

  // Returns whether the head asks for a WebSocket in an acceptable form.
  static bool is_request(const RequestHead& head);
  // Answers the head; false if the connection broke.
  boost::asio::awaitable<bool> accept(const RequestHead& head);

  struct Message {
    std::string text;
    std::unique_ptr<ClientBudget::Charge> charge;  // charged while the text is kept
  };
  // nullopt: the connection is closing or broken, or the message could not be taken.
  boost::asio::awaitable<std::optional<Message>> read();
  boost::asio::awaitable<bool> write(std::string_view text);
  // Sends a close frame, and waits for the peer's or the timeout.
  boost::asio::awaitable<void> close(CloseReason reason, std::string_view text);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
