#include "server/session/request_body.h"

#include <algorithm>

#include "server/state/settings.h"

namespace quire {

namespace asio = boost::asio;

namespace {

// Largest body that is skipped to keep the connection; a longer one closes it.
constexpr std::size_t kMaxDiscard = 262144;
constexpr std::chrono::milliseconds kNoTime{0};
constexpr std::size_t kDrainBytes = 256 * 1024;  // piece size of a body that is not collected

Error overloaded() {
  return Error{ErrorKind::kUnavailable, "Too many request bodies are being received. Please retry later.",
               "server_overloaded", "", std::chrono::seconds(1)};
}

}  // namespace

// Bytes after a request that closes the connection can only be an attempt to smuggle another.
asio::awaitable<bool> RequestBody::refuse_further_bytes() {
  if (exchange_.head().keep_alive || !parser_.done()) co_return false;
  if (exchange_.transport()->input().find_first_not_of("\r\n") == std::string_view::npos) co_return false;
  co_await exchange_.refuse(400, "data_after_close", "Bytes after a request that closes the connection");
  co_return true;
}

asio::awaitable<void> RequestBody::refuse_as_parser() {
  const HttpRefusal refusal = *parser_.refused();
  co_await exchange_.refuse(refusal.status, refusal.code, refusal.message);
}

// Returns false after refusing what the parser refused, or bytes after the request.
asio::awaitable<bool> RequestBody::check_end() {
  if (parser_.refused()) {
    co_await refuse_as_parser();
    co_return false;
  }
  const bool refused = co_await refuse_further_bytes();
  co_return !refused;
}

asio::awaitable<std::optional<std::string>> RequestBody::read() {
  parser_.limit_body(static_cast<std::size_t>(exchange_.options().max_body_bytes));
  std::string body;
  charge_.emplace(exchange_.state().bodies, exchange_.account().client_name(),
                  [transport = exchange_.transport()] { transport->wake(); });
  const bool arrived = co_await take(&body);
  if (!arrived) co_return std::nullopt;
  const bool is_usable = co_await check_end();
  if (!is_usable) co_return std::nullopt;
  charge_->complete();
  co_return body;
}

asio::awaitable<bool> RequestBody::pass_on(std::size_t max_bytes, const Drain& drain) {
  parser_.limit_body(max_bytes);
  std::string bytes;
  const bool arrived = co_await take(&bytes, &drain);
  if (!arrived) co_return false;
  co_return co_await check_end();
}

// Returns false if there is no memory for the bytes, after refusing the client.
asio::awaitable<bool> RequestBody::charge(std::size_t num_bytes, std::string& body) {
  const auto count = static_cast<std::int64_t>(num_bytes);
  if (charge_->take(count, exchange_.options().max_queued_bytes)) co_return true;
  // Frees the body before the refusal, which a client may take long to read.
  body = std::string();
  release();
  exchange_.close_after();
  const Error error = overloaded();
  co_await exchange_.respond(error);
  co_return false;
}

// Reads the body until the request is done or refused. Null `body`: drops it; with `drain`: passes it on piece by
// piece. False if the client left, was too slow, there was no memory for the body, or `drain` refused more.
asio::awaitable<bool> RequestBody::take(std::string* body, const Drain* drain) {
  const ServerOptions& options = exchange_.options();
  Transport& transport = *exchange_.transport();
  std::string dropped;
  bool invited = !exchange_.head().expects_continue;
  const auto began = Clock::now();
  while (!parser_.done() && !parser_.refused()) {
    dropped.clear();
    const std::uint64_t decoded_before = parser_.num_decoded();
    transport.consume(parser_.feed_body(transport.input(), body != nullptr ? *body : dropped));
    if (drain != nullptr && (body->size() >= kDrainBytes || parser_.done())) {
      const bool goes_on = co_await (*drain)(*body);
      if (!goes_on) co_return false;
    } else if (body != nullptr && drain == nullptr) {
      const bool has_room = co_await charge(parser_.num_decoded() - decoded_before, *body);
      if (!has_room) co_return false;
    }
    if (parser_.done() || parser_.refused()) break;
    if (!invited && exchange_.head().minor_version == 1) {
      co_await transport.write("HTTP/1.1 100 Continue\r\n\r\n", options.timeout.write);
    }
    invited = true;
    // Without a least rate, a client that sends one byte before each timeout would hold its place for ever.
    const auto allowed =
        options.timeout.body +
        std::chrono::milliseconds(static_cast<std::int64_t>(parser_.num_decoded()) * 1000 / options.min_body_rate);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(began + allowed - Clock::now());
    const ReadStatus status = co_await transport.fill(std::clamp(left, kNoTime, options.timeout.body));
    if (status == ReadStatus::kTimeout) {
      if (body != nullptr) *body = std::string();
      release();
      co_await exchange_.refuse(408, "request_timeout", "The request's body did not arrive in time");
    }
    if (status == ReadStatus::kClosed || status == ReadStatus::kTimeout) co_return false;
  }
  co_return true;
}

asio::awaitable<bool> RequestBody::respond_unread(Response response) {
  if (!parser_.done() && exchange_.head().expects_continue) {
    // A client that waits for "100 Continue" may or may not send its body after this answer, so the connection ends.
    exchange_.close_after();
  } else if (!parser_.done()) {
    parser_.limit_body(kMaxDiscard);
    const bool arrived = co_await take(nullptr);
    if (!arrived) co_return false;
  }
  if (parser_.refused() && parser_.refused()->status == 400) {
    co_await refuse_as_parser();
    co_return false;
  }
  if (parser_.refused()) exchange_.close_after();  // too long to be worth reading
  const bool refused = co_await refuse_further_bytes();
  if (refused) co_return false;
  co_return co_await exchange_.respond(std::move(response));
}

}  // namespace quire
