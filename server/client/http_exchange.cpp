#include "server/client/http_exchange.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <optional>

#include "server/client/client_state.h"

namespace quire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

namespace {

constexpr auto kClientToken = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kPieceSize = 16 * 1024;
constexpr int kMostInterim = 8;
constexpr int kSwitchingProtocols = 101;

tl::unexpected<Error> failed_to(const char* what, const boost::system::error_code& error) {
  return failure(ErrorKind::kUnavailable, fmt::format("{}: {}", what, error.message()), "no_answer");
}

http::request<http::string_body> message_of(const ClientRequest& request, const HttpUrl& server) {
  http::request<http::string_body> message;
  message.version(11);
  message.method_string(request.method);
  message.target(request.path);
  message.set(http::field::host, server.authority());
  message.set(http::field::connection, "close");
  for (const auto& [name, value] : request.fields)
    message.set(name, value);
  message.body() = request.body;
  message.prepare_payload();
  return message;
}

}  // namespace

// A connection, plain or over TLS, so that the code for messages is compiled once.
class ClientStream {
 public:
  using executor_type = beast::tcp_stream::executor_type;

  ClientStream(asio::any_io_executor executor, const WebClient::Tls* tls) : tcp_(std::move(executor)) {
    if (tls != nullptr) tls_.emplace(tcp_, tls->context);
  }
  executor_type get_executor() { return tcp_.get_executor(); }
  beast::tcp_stream& tcp() { return tcp_; }
  asio::ssl::stream<beast::tcp_stream&>& tls() { return *tls_; }
  bool is_secure() const { return tls_.has_value(); }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return tcp_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return tcp_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  beast::tcp_stream tcp_;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls_;
};

struct HttpExchange::State {
  State(asio::any_io_executor executor, const WebClient& asking)
      : client(asking), stream(std::move(executor), asking.tls_.get()) {}

  asio::awaitable<Result<void>> connect();
  asio::awaitable<Result<void>> shake_hands();

  const WebClient& client;
  ClientStream stream;
  beast::flat_buffer buffer;
  std::optional<http::response_parser<http::buffer_body>> reply;  // a parser for each message
  std::array<char, kPieceSize> piece;
};

asio::awaitable<Result<void>> HttpExchange::State::connect() {
  Tcp::resolver::results_type addresses;
  if (client.addresses_) {
    addresses = client.addresses_->list;
  } else {
    Tcp::resolver resolver(stream.get_executor());
    auto [unknown, found] = co_await resolver.async_resolve(client.server_.host, client.server_.port, kClientToken);
    if (unknown) co_return failed_to("resolve", unknown);
    addresses = std::move(found);
  }
  const auto [refused, endpoint] = co_await stream.tcp().async_connect(addresses, kClientToken);
  if (refused) co_return failed_to("connect", refused);
  boost::system::error_code ignored;
  stream.tcp().socket().set_option(Tcp::no_delay(true), ignored);
  co_return Result<void>();
}

asio::awaitable<Result<void>> HttpExchange::State::shake_hands() {
  const std::string& host = client.server_.host;
  stream.tls().set_verify_callback(asio::ssl::host_name_verification(host));
  // A server cannot choose a certificate by an address.
  boost::system::error_code no_address;
  asio::ip::make_address(host, no_address);
  if (no_address) SSL_set_tlsext_host_name(stream.tls().native_handle(), host.c_str());
  const auto [refused] = co_await stream.tls().async_handshake(asio::ssl::stream_base::client, kClientToken);
  if (refused) co_return failed_to("TLS", refused);
  co_return Result<void>();
}

HttpExchange::HttpExchange(asio::any_io_executor executor, const WebClient& client)
    : state_(std::make_unique<State>(std::move(executor), client)) {}
HttpExchange::~HttpExchange() = default;

asio::awaitable<Result<int>> HttpExchange::send(const ClientRequest& request, std::chrono::milliseconds timeout) {
  State& state = *state_;
  state.stream.tcp().expires_after(timeout);
  const auto connected = co_await state.connect();
  if (!connected) co_return tl::make_unexpected(connected.error());
  if (state.stream.is_secure()) {
    const auto shaken = co_await state.shake_hands();
    if (!shaken) co_return tl::make_unexpected(shaken.error());
  }
  auto message = message_of(request, state.client.server_);
  const auto [unsent, num_sent] = co_await http::async_write(state.stream, message, kClientToken);
  if (unsent) co_return failed_to("write", unsent);
  // Interim responses, such as 103, come before the answer.
  for (int i = 0; i < kMostInterim; ++i) {
    state.reply.emplace();
    state.reply->body_limit(boost::none);
    const auto [unread, num_read] =
        co_await http::async_read_header(state.stream, state.buffer, *state.reply, kClientToken);
    if (unread) co_return failed_to("read", unread);
    const int status = static_cast<int>(state.reply->get().result_int());
    if (status >= 200 || status == kSwitchingProtocols) co_return status;
  }
  co_return failed_to("read", http::make_error_code(http::error::bad_status));
}

std::string_view HttpExchange::field(std::string_view name) const {
  if (!state_->reply) return {};
  const auto& head = state_->reply->get();
  const auto found = head.find(boost::beast::string_view(name.data(), name.size()));
  return found == head.end() ? std::string_view() : std::string_view(found->value().data(), found->value().size());
}

void HttpExchange::extend(std::chrono::milliseconds timeout) {
  state_->stream.tcp().expires_after(timeout);
}

void HttpExchange::close() {
  state_->stream.tcp().close();
}

asio::awaitable<Result<std::string_view>> HttpExchange::read_some() {
  State& state = *state_;
  std::size_t count = 0;
  while (count == 0 && !state.reply->is_done()) {
    state.reply->get().body() = {state.piece.data(), state.piece.size(), true};
    const auto [error, num_read] =
        co_await http::async_read_some(state.stream, state.buffer, *state.reply, kClientToken);
    if (error && error != http::error::need_buffer) co_return failed_to("read", error);
    count = state.piece.size() - state.reply->get().body().size;
  }
  co_return std::string_view(state.piece.data(), count);
}

asio::awaitable<Result<std::string>> HttpExchange::read_rest() {
  std::string rest;
  while (true) {
    const auto piece = co_await read_some();
    if (!piece) co_return tl::make_unexpected(piece.error());
    if (piece->empty()) co_return rest;
    rest += *piece;
  }
}

}  // namespace quire
