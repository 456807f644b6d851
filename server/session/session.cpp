#include "server/session/session.h"

#include <algorithm>
#include <functional>
#include <variant>

#include "core/base/log.h"
#include "server/api/batches/batches.h"
#include "server/run/admin_task.h"
#include "server/session/admin_answer.h"
#include "server/session/call_answer.h"
#include "server/session/exchange.h"
#include "server/session/file_answer.h"
#include "server/session/request_body.h"
#include "server/session/resumed_answer.h"
#include "server/session/socket_answer.h"
#include "server/session/upload_answer.h"
#include "server/state/settings.h"
#include "server/threads/run_by.h"
#include "server/wire/transport.h"

namespace quire {

namespace asio = boost::asio;

namespace {

bool opens_socket(const RouteMatch& match) {
  return match.route != nullptr && std::holds_alternative<SocketRoute>(match.route->answer);
}

// A coroutine of its own, so that the session's frame does not hold every kind of answer.
template <class Answer, class... Parts>
asio::awaitable<bool> give(Parts&... parts) {
  Answer answer(parts...);
  co_return co_await answer.give();
}

// Gives a response that is made on the reports thread.
asio::awaitable<bool> give_report(Exchange& exchange, RequestBody& body, std::function<Response()> make) {
  const auto guarded_make = guarded<Response>(exchange.request_id(), [&]() -> Result<Response> { return make(); });
  Result<Response> made = co_await run_by<Result<Response>>(exchange.state().post_report, guarded_make);
  Response response;
  if (made) {
    response = std::move(*made);
  } else {
    response = error_response(made.error());
  }
  co_return co_await body.respond_unread(std::move(response));
}

std::chrono::milliseconds until(Session::Time deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

}  // namespace

asio::awaitable<void> Connection::run() {
  // Not `while (co_await ...)`: GCC 12 destroys the awaited frame before it ran.
  const auto timeout = state_.settings()->options.timeout.header;
  bool again = co_await transport_->handshake(timeout);
  while (again) {
    const auto idle_until = Clock::now() + state_.settings()->options.timeout.idle;
    // Waits here: a coroutine of its own would cost each idle connection a frame.
    if (transport_->input().empty()) {
      const ReadStatus status = co_await transport_->fill(until(idle_until));
      again = status == ReadStatus::kMore;
    }
    if (again) again = co_await serve_next(idle_until);
  }
  co_await transport_->close_gracefully();
}

asio::awaitable<bool> Connection::serve_next(Session::Time idle_until) {
  const auto session = std::make_unique<Session>(state_, transport_, on_admin_);
  const bool asked = co_await session->read_head(idle_until);
  if (!asked) co_return false;
  const Counted busy(state_.num_busy);
  fresh_.reset();
  const bool again = co_await session->serve();
  co_return again;
}

Session::Session(ServerState& state, std::shared_ptr<Transport> transport, bool on_admin)
    : state_(state),
      transport_(std::move(transport)),
      on_admin_(on_admin),
      settings_(state.settings()),
      parser_(static_cast<std::size_t>(settings_->options.max_header_bytes)) {}

asio::awaitable<bool> Session::read_head(Time idle_until) {
  auto deadline = idle_until;
  bool started = false;
  while (true) {
    transport_->consume(parser_.feed_head(transport_->input()));
    if (parser_.refused()) {
      co_await refuse_head(*parser_.refused());
      co_return false;
    }
    if (parser_.head_done()) co_return true;
    if (parser_.started() && !started) {
      started = true;
      deadline = Clock::now() + settings_->options.timeout.header;
    }
    const ReadStatus status = co_await transport_->fill(until(deadline));
    if (status == ReadStatus::kTimeout && started) {
      const HttpRefusal refusal{408, "request_timeout", "The request's head did not arrive in time"};
      co_await refuse_head(refusal);
    }
    if (status != ReadStatus::kMore) co_return false;
  }
}

// Logs the refusal without any text of the client.
asio::awaitable<void> Session::refuse_head(const HttpRefusal& refusal) {
  Exchange exchange(state_, transport_, RequestHead(), on_admin_);
  co_await exchange.refuse(refusal.status, refusal.code, refusal.message);
  exchange.account().record().times.end = Clock::now();
  exchange.account().log();
}

asio::awaitable<bool> Session::serve() {
  Exchange exchange(state_, transport_, parser_.take_head(), on_admin_);
  RequestBody body(exchange, parser_);
  bool answered = false;
  std::optional<Error> error;
  try {
    answered = co_await answer(exchange, body);
  } catch (const std::bad_alloc& failure) {
    log::error("request {}: {}", exchange.request_id(), failure.what());
    error = out_of_memory();
  }
  body.release();
  if (error) co_await exchange.end_failed(*error);
  exchange.account().end();
  if (!answered) co_return false;
  co_return exchange.keeps_alive();
}

asio::awaitable<bool> Session::answer(Exchange& exchange, RequestBody& body) {
  const bool refused = co_await body.refuse_further_bytes();
  if (refused) co_return false;
  const RequestHead& head = exchange.head();
  if (head.asks_socket && !opens_socket(find_route(head.method, head.path))) {
    co_await exchange.refuse(400, "upgrade_unsupported", "No protocol upgrade is served at this path");
    co_return false;
  }
  exchange.pass_gate(exchange.resumes());
  auto& refusal = exchange.account().admission().refusal;
  if (refusal) co_return co_await body.respond_unread(std::move(*refusal));
  if (head.minor_version == 1 && !head.names_host) {
    co_await exchange.refuse(400, "missing_host", "An HTTP/1.1 request needs a Host header");
    co_return false;
  }
  co_return co_await hand_over(exchange, body);
}

asio::awaitable<bool> Session::hand_over(Exchange& exchange, RequestBody& body) {
  const Admission& admission = exchange.account().admission();
  const auto& how = admission.route->answer;
  if (std::holds_alternative<SocketRoute>(how)) co_return co_await give<SocketAnswer>(exchange);
  if (const auto* const handler = std::get_if<StateHandler>(&how)) {
    Response response = (*handler)(state_);
    co_return co_await body.respond_unread(std::move(response));
  }
  if (const auto* const handler = std::get_if<ReportHandler>(&how)) {
    const std::function<Response()> report = [&] { return (*handler)(state_, admission.reader); };
    co_return co_await give_report(exchange, body, report);
  }
  if (const auto* const handler = std::get_if<PageHandler>(&how)) {
    const std::function<Response()> page = [&] { return (*handler)(exchange.head()); };
    co_return co_await give_report(exchange, body, page);
  }
  if (const auto* const admin = std::get_if<AdminHandler>(&how))
    co_return co_await give<AdminAnswer>(exchange, body, *admin);
  if constexpr (is_built(Module::kBatches)) {
    if (const auto* const stored = std::get_if<StoredEndpoint>(&how))
      co_return co_await give<FileAnswer>(exchange, body, *stored);
    if (admission.route->takes_form()) co_return co_await give<UploadAnswer>(exchange, body);
  }
  if (exchange.resumes()) co_return co_await give<ResumedAnswer>(exchange, body);
  co_return co_await give<CallAnswer>(exchange, body);
}

}  // namespace quire
