#include "server/client/web_reader.h"

#include <boost/asio/co_spawn.hpp>

namespace quire {

namespace asio = boost::asio;

namespace {

// Interval at which a blocking call checks for a stop.
constexpr std::chrono::milliseconds kStopCheck{100};

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

tl::unexpected<Error> bad_redirect(std::string message) {
  return failure(ErrorKind::kInvalidRequest, std::move(message), "bad_redirect");
}

tl::unexpected<Error> broken() {
  return failure(ErrorKind::kInternal, "the connection failed", "no_answer");
}

tl::unexpected<Error> stopped() {
  return failure(ErrorKind::kUnavailable, "stopped", "stopped");
}

}  // namespace

WebReader::WebReader(std::stop_token stop, std::chrono::milliseconds patience)
    : stop_(std::move(stop)), patience_(patience) {}

WebReader::~WebReader() = default;

Result<int> WebReader::send(const ClientRequest& request) {
  std::optional<Result<int>> status;
  asio::co_spawn(context_, exchange_->send(request, patience_),
                 [&status](const std::exception_ptr& failed, Result<int> result) {
                   status = failed ? Result<int>(broken()) : std::move(result);
                 });
  context_.restart();
  while (!status) {
    context_.run_for(kStopCheck);
    if (!status && stop_.stop_requested()) exchange_->close();
  }
  if (stop_.stop_requested()) return stopped();
  return *std::move(status);
}

Result<int> WebReader::open(const WebRequest& request) {
  HttpUrl url = request.url;
  for (int redirects = 0;; ++redirects) {
    ClientRequest asked{request.method, url.path.empty() ? "/" : url.path, request.fields, ""};
    if (!request.authorization.empty() && is_same_origin(url, request.url)) {
      asked.fields.emplace_back("Authorization", request.authorization);
    }
    exchange_.reset();
    is_reading_ = false;
    // Later requests use only the accepted addresses.
    const bool is_pinned = request.accepts_address && client_ != nullptr && is_same_origin(url, client_->server());
    if (!is_pinned) client_ = std::make_unique<WebClient>(url);
    if (!is_pinned && request.accepts_address) {
      if (auto found = client_->resolve_to(request.accepts_address); !found) return tl::make_unexpected(found.error());
    }
    exchange_ = std::make_unique<HttpExchange>(context_.get_executor(), *client_);
    auto status = send(asked);
    if (!status || !is_redirect(*status) || request.max_redirects == 0) return status;
    if (redirects == request.max_redirects) return bad_redirect("too many redirects");
    auto next = redirected_url(url, exchange_->field("Location"));
    if (!next) return bad_redirect("a redirect without a usable Location");
    if (request.stays_at_origin && !is_same_origin(url, *next))
      return bad_redirect("a redirect to another server, which is not followed");
    if (url.secure && !next->secure) return bad_redirect("a redirect from https to http, which is not followed");
    url = *std::move(next);
  }
}

std::string_view WebReader::field(std::string_view name) const {
  return exchange_->field(name);
}

Result<std::optional<std::string_view>> WebReader::read_within(std::chrono::milliseconds time) {
  if (!is_reading_) {
    exchange_->extend(patience_);
    read_.reset();
    asio::co_spawn(context_, exchange_->read_some(),
                   [this](const std::exception_ptr& failed, Result<std::string_view> result) {
                     read_ = failed ? Result<std::string_view>(broken()) : std::move(result);
                   });
    context_.restart();
    is_reading_ = true;
  }
  context_.run_for(time);
  if (!read_ && stop_.stop_requested()) exchange_->close();
  while (!read_ && stop_.stop_requested())
    context_.run_for(kStopCheck);
  if (stop_.stop_requested()) return stopped();
  if (!read_) return std::nullopt;
  is_reading_ = false;
  if (!*read_) return tl::make_unexpected(read_->error());
  return **read_;
}

Result<std::string> WebReader::read_rest(std::size_t most) {
  std::string rest;
  while (true) {
    const auto piece = read_within(kStopCheck);
    if (!piece) return tl::make_unexpected(piece.error());
    if (!*piece) continue;
    if ((*piece)->empty()) return rest;
    if (rest.size() + (*piece)->size() > most) return invalid("the reply is too long", "", "reply_too_long");
    rest += **piece;
  }
}

}  // namespace quire
