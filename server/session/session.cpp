#include "server/session/session.h"

#include <algorithm>

#include "core/base/log.h"
#include "server/threads/run_by.h"
#include "server/wire/listener.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

namespace {

// Largest content that is sent together with the head.
constexpr std::size_t kSmallContent = 16 * 1024;

// Accepts an id that can be echoed in a header and logged.
bool is_usable_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

bool opens_socket(const RouteMatch& match) {
  return match.route != nullptr && std::holds_alternative<SocketRoute>(match.route->answer);
}

}  // namespace

asio::awaitable<void> Connection::run() {
  // Not `while (co_await ...)`: GCC 12 destroys the awaited frame before it ran.
  const auto timeout = state_.settings()->options.timeout.header;
  bool again = co_await transport_->handshake(timeout);
  while (again) {
    const auto idle_until = Clock::now() + state_.settings()->options.timeout.idle;
    // A coroutine of its own would keep its frame for each connection that idles.
    if (transport_->input().empty()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(idle_until - Clock::now());
      const ReadStatus status = co_await transport_->fill(std::max(left, std::chrono::milliseconds(0)));
      again = status == ReadStatus::kMore;
    }
    if (again) again = co_await serve_next(idle_until);
  }
  co_await transport_->close_gracefully();
}

asio::awaitable<bool> Connection::serve_next(Clock::time_point idle_until) {
  const auto session = std::make_unique<Session>(state_, transport_, is_admin_);
  const bool asked = co_await session->read_head(idle_until);
  if (!asked) co_return false;
  const Counted busy(state_.num_busy);
  fresh_.reset();
  const bool again = co_await session->serve();
  co_return again;
}

asio::awaitable<bool> Session::serve() {
  settings_ = state_.settings();  // reading the head may have taken long
  head_ = parser_.take_head();
  keep_alive_ = head_.keep_alive && state_.phase.load() < ServerPhase::kRefusing && !state_.handing_over.load();
  const std::string_view asked = head_.field("x-request-id");
  request_id_ = is_usable_id(asked) ? std::string(asked) : make_id("req-");
  begin_record();
  const std::uint64_t num_written = transport_->num_written();
  bool answered = false;
  std::optional<Error> error;
  try {
    answered = co_await answer();
  } catch (const std::bad_alloc& failure) {
    log::error("request {}: {}", request_id_, failure.what());
    error = out_of_memory();
  }
  if (error) co_await end_failed(*error, num_written);
  note_end();
  co_return answered&& keep_alive_;
}

// Sends the error unless a part of the answer was sent: then closing the connection shows that the rest is missing.
asio::awaitable<void> Session::end_failed(const Error& error, std::uint64_t num_written_before) {
  keep_alive_ = false;
  upload_.reset();
  if (transport_->num_written() > num_written_before) co_return;
  Response response = error_response(error);
  co_await respond(std::move(response));
}

asio::awaitable<bool> Session::read_head(Clock::time_point idle_until) {
  auto deadline = idle_until;
  bool started = false;
  while (true) {
    transport_->consume(parser_.feed_head(transport_->input()));
    if (parser_.refused()) {
      const HttpRefusal refusal = *parser_.refused();
      co_await refuse_head(refusal.status, refusal.code, refusal.message);
      co_return false;
    }
    if (parser_.head_done()) co_return true;
    if (parser_.started() && !started) {
      started = true;
      deadline = Clock::now() + options().timeout.header;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const ReadStatus status = co_await transport_->fill(std::max(left, std::chrono::milliseconds(0)));
    if (status == ReadStatus::kTimeout && started) {
      co_await refuse_head(408, "request_timeout", "The request's head did not arrive in time");
    }
    if (status != ReadStatus::kMore) co_return false;
  }
}

asio::awaitable<bool> Session::answer() {
  const bool refused = co_await refuse_further_bytes();
  if (refused) co_return false;
  if (head_.asks_socket && !opens_socket(find_route(head_.method, head_.path))) {
    co_await refuse(400, "upgrade_unsupported", "No protocol upgrade is served at this path");
    co_return false;
  }
  const Arrival arrival{is_admin_, transport_->peer() == kLocalPeer, transport_->peer(), resumes()};
  admission_ = pass_gate(state_, *settings_, head_, arrival);
  if (admission_.key) record_.key_name = admission_.key->name;
  limit_reader();
  record_.is_call = admission_.route != nullptr && admission_.route->is_api();
  if constexpr (is_built(Module::kOtlp)) {
    if (record_.is_call && state_.spans && record_.trace.trace_id.empty())
      record_.trace = new_trace(state_.spans->chooses());
  }
  if (admission_.refusal) co_return co_await respond_to_head(std::move(*admission_.refusal));
  if (head_.minor_version == 1 && !head_.names_host) {
    co_await refuse(400, "missing_host", "An HTTP/1.1 request needs a Host header");
    co_return false;
  }
  const auto& route_answer = admission_.route->answer;
  if (std::holds_alternative<SocketRoute>(route_answer)) co_return co_await serve_socket();
  if (const auto* const handler = std::get_if<StateHandler>(&route_answer)) {
    Response response = (*handler)(state_);
    co_return co_await respond_to_head(std::move(response));
  }
  if (const auto* const handler = std::get_if<ReportHandler>(&route_answer)) {
    const std::function<Response()> report = [&] { return (*handler)(state_, admission_.reader); };
    co_return co_await respond_with_report(report);
  }
  if (const auto* const handler = std::get_if<PageHandler>(&route_answer)) {
    const std::function<Response()> page = [&] { return (*handler)(head_); };
    co_return co_await respond_with_report(page);
  }
  if (const auto* const admin = std::get_if<AdminHandler>(&route_answer)) co_return co_await call_admin(*admin);
  if constexpr (is_built(Module::kBatches)) {
    if (const auto* const stored = std::get_if<StoredEndpoint>(&route_answer)) co_return co_await call_stored(*stored);
    if (admission_.route->takes_form()) co_return co_await take_upload();
  }
  if (arrival.resumes) co_return co_await resume_stream();
  co_return co_await call_api();
}

void Session::begin_record() {
  record_.request_id = request_id_;
  record_.method = head_.method;
  record_.path = head_.sent_path;
  record_.peer = transport_->peer();
  record_.times.arrival = Clock::now();
  if (auto trace = parse_traceparent(head_.field("traceparent"))) record_.trace = *std::move(trace);
}

void Session::note_end() {
  upload_.reset();
  place_ = {};
  admission_.lease = {};
  if (record_.times.end == Clock::time_point{}) record_.times.end = Clock::now();
  state_.request_trace.add(record_);
  log_access(record_, options().access_log);
  if constexpr (is_built(Module::kOtlp)) {
    if (state_.spans && record_.trace.sampled) state_.spans->offer(record_);
  }
}

// Counts before the answer's last bytes: a client that has them finds its request counted and its place free.
void Session::count(int status) {
  place_ = {};
  admission_.lease = {};
  record_.status = status;
  state_.metrics.count_response(status);
  state_.metrics.key_request(record_);
}

asio::awaitable<bool> Session::respond(Response response) {
  write_failure(response, framing());
  if (response.failure) {
    record_.error = response.failure->code;
    state_.metrics.count_refusal(response.failure->code);
  }
  count(response.status);
  std::string message = response_head(response, framing());
  std::string_view content = head_.method == "HEAD" ? std::string_view() : response.content();
  if (content.size() <= kSmallContent) message += std::exchange(content, {});
  bool sent = co_await transport_->write(message, options().timeout.write);
  if (sent && !content.empty()) {
    const Bytes bytes = response.document.empty() ? Bytes::kOwn : Bytes::kShared;
    sent = co_await transport_->write(content, options().timeout.write, bytes);
  }
  co_return sent&& keep_alive_;
}

asio::awaitable<bool> Session::respond_with_report(std::function<Response()> make) {
  const auto guarded_make = guarded<Response>(request_id_, [&]() -> Result<Response> { return make(); });
  Result<Response> made = co_await run_by<Result<Response>>(state_.post_report, guarded_make);
  Response response;
  if (made) {
    response = std::move(*made);
  } else {
    response = error_response(made.error());
  }
  co_return co_await respond_to_head(std::move(response));
}

// Charges the unread part of an answer to the client's key or address.
void Session::limit_reader() {
  transport_->limit_reader({&state_.answers, client_name(), options().max_unread_bytes, options().min_answer_rate});
}

asio::awaitable<void> Session::refuse(int status, const char* code, std::string_view message) {
  keep_alive_ = false;
  Response response = error_response(status, code, std::string(message));
  co_await respond(std::move(response));
}

// Logs like other requests, but shows none of the client's text in place of a path.
asio::awaitable<void> Session::refuse_head(int status, const char* code, std::string_view message) {
  request_id_ = make_id("req-");
  begin_record();
  co_await refuse(status, code, message);
  record_.times.end = Clock::now();
  log_access(record_, options().access_log);
}

}  // namespace quire
