// Session: reading or skipping a request's body, and its limits.
#include <algorithm>

#include "server/session/session.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

namespace {

// Largest unneeded body that is read to keep the connection; beyond it closing is cheaper.
constexpr std::size_t kMaxDiscard = 262144;
constexpr std::chrono::milliseconds kNoTime{0};
constexpr std::size_t kDrainBytes = 256 * 1024;  // piece size of a body that is not collected

Error overloaded() {
  return Error{ErrorKind::kUnavailable, "Too many request bodies are being received. Please retry later.",
               "server_overloaded", "", std::chrono::seconds(1)};
}

}  // namespace

// The key or address that this connection's bodies are charged to.
std::string Session::client_name() const {
  return record_.key_name.empty() ? "address " + transport_->peer() : "key " + record_.key_name;
}

// Bytes after a request that closes the connection can only be an attempt to smuggle another.
asio::awaitable<bool> Session::refuse_further_bytes() {
  if (head_.keep_alive || !parser_.done()) co_return false;
  if (transport_->input().find_first_not_of("\r\n") == std::string_view::npos) co_return false;
  co_await refuse(400, "data_after_close", "Bytes after a request that closes the connection");
  co_return true;
}

asio::awaitable<std::optional<std::string>> Session::read_body() {
  parser_.limit_body(static_cast<std::size_t>(options().max_body_bytes));
  std::string body;
  upload_.emplace(state_.bodies, client_name(), [transport = transport_] { transport->wake(); });
  const bool arrived = co_await take_body(&body);
  if (!arrived) co_return std::nullopt;
  if (parser_.refused()) {
    const HttpRefusal refusal = *parser_.refused();
    co_await refuse(refusal.status, refusal.code, refusal.message);
    co_return std::nullopt;
  }
  const bool refused = co_await refuse_further_bytes();
  if (refused) co_return std::nullopt;
  upload_->complete();
  co_return body;
}

asio::awaitable<bool> Session::charge_body(std::size_t num_bytes, std::string& body) {
  const auto count = static_cast<std::int64_t>(num_bytes);
  if (upload_->take(count, options().max_queued_bytes)) co_return true;
  // Frees the body before the refusal, which a client may take long to read.
  body = std::string();
  upload_.reset();
  co_await refuse_overloaded();
  co_return false;
}

// Reads the body until the request is done or refused. Null `body`: drops it; with `drain`: passes it on piece by
// piece. False if the client left, was too slow, there was no memory for the body, or `drain` refused more.
asio::awaitable<bool> Session::take_body(std::string* body, const BodyDrain* drain) {
  std::string dropped;
  bool invited = !head_.expects_continue;
  const auto began = Clock::now();
  while (!parser_.done() && !parser_.refused()) {
    dropped.clear();
    const std::uint64_t decoded_before = parser_.num_decoded();
    transport_->consume(parser_.feed_body(transport_->input(), body != nullptr ? *body : dropped));
    if (drain != nullptr && (body->size() >= kDrainBytes || parser_.done())) {
      const bool goes_on = co_await (*drain)(*body);
      if (!goes_on) co_return false;
    } else if (body != nullptr && drain == nullptr) {
      const bool has_room = co_await charge_body(parser_.num_decoded() - decoded_before, *body);
      if (!has_room) co_return false;
    }
    if (parser_.done() || parser_.refused()) break;
    if (!invited && head_.minor_version == 1) {
      co_await transport_->write("HTTP/1.1 100 Continue\r\n\r\n", options().timeout.write);
    }
    invited = true;
    // A client that sends one byte before each timeout would otherwise hold its place for ever.
    const auto allowed =
        options().timeout.body +
        std::chrono::milliseconds(static_cast<std::int64_t>(parser_.num_decoded()) * 1000 / options().min_body_rate);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(began + allowed - Clock::now());
    const ReadStatus status = co_await transport_->fill(std::clamp(left, kNoTime, options().timeout.body));
    if (status == ReadStatus::kTimeout) {
      if (body != nullptr) *body = std::string();
      upload_.reset();
      co_await refuse(408, "request_timeout", "The request's body did not arrive in time");
    }
    if (status == ReadStatus::kClosed || status == ReadStatus::kTimeout) co_return false;
  }
  co_return true;
}

// Answers without interpreting the body. The body is still read first: if it is malformed, the next request's beginning
// is unknown, and this request is refused.
asio::awaitable<bool> Session::respond_to_head(Response response) {
  if (!parser_.done() && head_.expects_continue) {
    // A client that waits for "100 Continue" has not sent its body: there is nothing to skip, and whether it will send
    // the body is unknown.
    keep_alive_ = false;
  } else if (!parser_.done()) {
    parser_.limit_body(kMaxDiscard);
    const bool arrived = co_await take_body(nullptr);
    if (!arrived) co_return false;
  }
  if (parser_.refused() && parser_.refused()->status == 400) {
    const HttpRefusal refusal = *parser_.refused();
    co_await refuse(refusal.status, refusal.code, refusal.message);
    co_return false;
  }
  if (parser_.refused()) keep_alive_ = false;  // too long to be worth reading
  const bool refused = co_await refuse_further_bytes();
  if (refused) co_return false;
  co_return co_await respond(std::move(response));
}

asio::awaitable<void> Session::refuse_overloaded() {
  keep_alive_ = false;
  Response response = error_response(overloaded());
  co_await respond(std::move(response));
}

}  // namespace quire
