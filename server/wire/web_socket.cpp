#include "server/wire/web_socket.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <cstring>

namespace quire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace websocket = boost::beast::websocket;
using boost::system::error_code;

namespace {

constexpr std::chrono::hours kForEver{24 * 365};
constexpr std::size_t kFrameBytes = 65536;
// Bytes of a message that are copied for one write.
constexpr std::size_t kWriteBytes = 65536;
// Timeout of the closing handshake.
constexpr std::chrono::seconds kCloseTimeout{2};

http::request<http::empty_body> handshake_of(const RequestHead& head) {
  http::request<http::empty_body> request{http::verb::get, head.target, 11};
  for (const HeaderField& field : head.fields)
    request.insert(field.name, field.value);
  return request;
}

struct IoCount {
  error_code error;
  std::size_t count = 0;
};

// The stream that Beast reads from and writes to.
class TransportStream {
 public:
  using executor_type = asio::any_io_executor;

  TransportStream(std::shared_ptr<Transport> transport, std::chrono::milliseconds write_timeout)
      : transport_(std::move(transport)), write_timeout_(write_timeout) {}

  executor_type get_executor() { return transport_->executor(); }
  Transport& transport() { return *transport_; }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    const auto begin = asio::buffer_sequence_begin(buffers);
    const asio::mutable_buffer to =
        begin == asio::buffer_sequence_end(buffers) ? asio::mutable_buffer() : asio::mutable_buffer(*begin);
    return start([transport = transport_, to] { return read(transport, to); }, std::forward<Token>(token));
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    std::string bytes(std::min(asio::buffer_size(buffers), kWriteBytes), '\0');
    asio::buffer_copy(asio::buffer(bytes), buffers);
    return start([transport = transport_, timeout = write_timeout_,
                  bytes = std::move(bytes)]() mutable { return write(transport, std::move(bytes), timeout); },
                 std::forward<Token>(token));
  }

  friend void beast_close_socket(TransportStream& stream) { stream.transport_->close(); }
  friend void teardown(beast::role_type, TransportStream&, error_code& error) { error = {}; }
  // The session closes the connection.
  template <class Handler>
  friend void async_teardown(beast::role_type, TransportStream& stream, Handler&& handler) {
    asio::post(stream.get_executor(), [handler = std::forward<Handler>(handler)]() mutable { handler(error_code()); });
  }

 private:
  template <class Work, class Token>
  auto start(Work work, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
        [executor = get_executor()](auto handler, auto&& job) {
          asio::co_spawn(executor, job(),
                         [handler = std::move(handler)](const std::exception_ptr& failure, IoCount done) mutable {
                           if (failure) done.error = asio::error::no_memory;
                           handler(done.error, done.count);
                         });
        },
        token, std::move(work));
  }

  static asio::awaitable<IoCount> read(std::shared_ptr<Transport> transport, asio::mutable_buffer to) {
    if (to.size() == 0) co_return IoCount{};
    while (transport->input().empty()) {
      const ReadStatus status = co_await transport->fill(kForEver);
      if (status == ReadStatus::kClosed) co_return IoCount{asio::error::eof, 0};
    }
    const std::string_view input = transport->input();
    const std::size_t count = std::min(input.size(), to.size());
    std::memcpy(to.data(), input.data(), count);
    transport->consume(count);
    co_return IoCount{{}, count};
  }

  static asio::awaitable<IoCount> write(std::shared_ptr<Transport> transport, std::string bytes,
                                        std::chrono::milliseconds timeout) {
    const bool sent = co_await transport->write(bytes, timeout);
    co_return sent ? IoCount{{}, bytes.size()} : IoCount{asio::error::broken_pipe, 0};
  }

  std::shared_ptr<Transport> transport_;
  std::chrono::milliseconds write_timeout_;
};

}  // namespace

class WebSocket::Impl {
 public:
  Impl(std::shared_ptr<Transport> transport, ClientBudget& budget, std::string client, const WebSocketLimits& limits)
      : budget_(budget),
        client_(std::move(client)),
        limits_(limits),
        transport_(transport),
        stream_(std::move(transport), limits.write_timeout) {
    websocket::stream_base::timeout timeouts;
    timeouts.handshake_timeout = kCloseTimeout;
    timeouts.idle_timeout = limits.idle_timeout;
    timeouts.keep_alive_pings = true;
    stream_.set_option(timeouts);
    stream_.read_message_max(limits.max_message);
    stream_.auto_fragment(false);
    stream_.text(true);
    // Compression would need two windows for each connection.
    websocket::permessage_deflate uncompressed;
    uncompressed.server_enable = false;
    stream_.set_option(uncompressed);
  }

  asio::awaitable<bool> accept(const RequestHead& head) {
    const auto request = handshake_of(head);
    auto [error] = co_await stream_.async_accept(request, kUseTuple);
    co_return !error;
  }

  asio::awaitable<std::optional<Message>> read() {
    Message message;
    message.charge =
        std::make_unique<ClientBudget::Charge>(budget_, client_, [transport = transport_] { transport->cut(); });
    beast::flat_buffer buffer;
    do {
      auto [error, count] = co_await stream_.async_read_some(buffer, kFrameBytes, kUseTuple);
      if (error) co_return std::nullopt;
      if (!message.charge->take(static_cast<std::int64_t>(count), limits_.max_queued_bytes)) {
        co_await close(CloseReason::kTryLater, "too many requests are being received");
        co_return std::nullopt;
      }
    } while (!stream_.is_message_done());
    if (!stream_.got_text()) {
      co_await close(CloseReason::kUnsupported, "messages are JSON texts");
      co_return std::nullopt;
    }
    message.charge->complete();
    message.text = beast::buffers_to_string(buffer.data());
    buffer.clear();
    buffer.shrink_to_fit();
    co_return std::optional<Message>(std::move(message));
  }

  asio::awaitable<bool> write(std::string_view text) {
    auto [error, count] = co_await stream_.async_write(asio::buffer(text.data(), text.size()), kUseTuple);
    co_return !error;
  }

  asio::awaitable<void> close(CloseReason reason, std::string_view text) {
    if (!stream_.is_open()) co_return;
    websocket::close_reason why(static_cast<std::uint16_t>(reason));
    why.reason.assign(text.data(), std::min<std::size_t>(text.size(), 120));
    co_await stream_.async_close(why, kUseTuple);
  }

 private:
  ClientBudget& budget_;
  const std::string client_;
  const WebSocketLimits limits_;
  std::shared_ptr<Transport> transport_;
  websocket::stream<TransportStream, false> stream_;
};

WebSocket::WebSocket(std::shared_ptr<Transport> transport, ClientBudget& budget, std::string client,
                     const WebSocketLimits& limits)
    : impl_(std::make_unique<Impl>(std::move(transport), budget, std::move(client), limits)) {}
WebSocket::~WebSocket() = default;

bool WebSocket::is_request(const RequestHead& head) {
  const auto request = handshake_of(head);
  return head.minor_version == 1 && websocket::is_upgrade(request) && head.field("sec-websocket-version") == "13" &&
         head.field("sec-websocket-key").size() == 24;
}

asio::awaitable<bool> WebSocket::accept(const RequestHead& head) {
  return impl_->accept(head);
}
asio::awaitable<std::optional<WebSocket::Message>> WebSocket::read() {
  return impl_->read();
}
asio::awaitable<bool> WebSocket::write(std::string_view text) {
  return impl_->write(text);
}
asio::awaitable<void> WebSocket::close(CloseReason reason, std::string_view text) {
  return impl_->close(reason, text);
}

}  // namespace quire
