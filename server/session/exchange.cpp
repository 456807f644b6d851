#include "server/session/exchange.h"

#include <algorithm>

#include "server/metrics/metrics.h"
#include "server/ops/reports/span_exporter.h"
#include "server/state/settings.h"
#include "server/wire/client_budget.h"
#include "server/wire/listener.h"

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

std::string id_for(const RequestHead& head) {
  const std::string_view asked = head.field("x-request-id");
  return is_usable_id(asked) ? std::string(asked) : make_id("req-");
}

}  // namespace

Exchange::Exchange(ServerState& state, std::shared_ptr<Transport> transport, RequestHead head, bool on_admin)
    : state_(state),
      transport_(std::move(transport)),
      head_(std::move(head)),
      on_admin_(on_admin),
      num_written_before_(transport_->num_written()),
      account_(state, state.settings(), new_record(id_for(head_))),
      keeps_alive_(head_.keep_alive && state.phase.load() < ServerPhase::kRefusing && !state.handing_over.load()) {}

RequestRecord Exchange::new_record(std::string request_id) const {
  RequestRecord record;
  record.request_id = std::move(request_id);
  record.method = head_.method;
  record.path = head_.sent_path;
  record.peer = transport_->peer();
  record.times.arrival = Clock::now();
  if (auto trace = parse_traceparent(head_.field("traceparent"))) record.trace = *std::move(trace);
  return record;
}

void Exchange::pass_gate(bool resumes) {
  const Arrival arrival{on_admin_, transport_->peer() == kLocalPeer, transport_->peer(), resumes};
  account_.admit(quire::pass_gate(state_, account_.settings(), head_, arrival));
  transport_->limit_reader(
      {&state_.answers, account_.client_name(), options().max_unread_bytes, options().min_answer_rate});
  if constexpr (is_built(Module::kOtlp)) {
    RequestRecord& record = account_.record();
    if (record.is_call && state_.spans && record.trace.trace_id.empty())
      record.trace = new_trace(state_.spans->chooses());
  }
}

bool Exchange::keeps_stream() const {
  return options().resume.window.count() > 0 && request_id() == head_.field("x-request-id");
}

bool Exchange::resumes() const {
  return keeps_stream() && head_.method == "POST" && !head_.field("last-event-id").empty();
}

ResponseFraming Exchange::framing() const {
  return {head_.minor_version, keeps_alive_, request_id(), &account_.admission().fields, error_form(head_.path)};
}

asio::awaitable<bool> Exchange::respond(Response response) {
  write_failure(response, framing());
  if (response.failure) {
    account_.record().error = response.failure->code;
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
  co_return sent;
}

asio::awaitable<void> Exchange::refuse(int status, const char* code, std::string_view message) {
  close_after();
  Response response = error_response(status, code, std::string(message));
  co_await respond(std::move(response));
}

asio::awaitable<void> Exchange::end_failed(const Error& error) {
  close_after();
  if (transport_->num_written() > num_written_before_) co_return;
  co_await respond(error);
}

}  // namespace quire
