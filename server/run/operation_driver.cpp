#include "server/run/operation_driver.h"

#include <algorithm>

#include "server/state/live_operations.h"

namespace quire {

namespace asio = boost::asio;

OperationDriver::OperationDriver(ServerState& state, Transport& transport, Operation& operation,
                                 ResponseFraming framing, std::chrono::milliseconds write_timeout)
    : state_(state),
      transport_(transport),
      operation_(operation),
      framing_(framing),
      write_timeout_(write_timeout),
      run_(state, transport.executor(), operation) {
  run_.use_text_threads(transport_.client());
  state_.live.add(run_.mailbox());  // the last step that may throw
  transport_.charge_also([this] { return run_.num_waiting_bytes(); });
}

OperationDriver::~OperationDriver() {
  transport_.unwatch();
  transport_.charge_also(nullptr);
  if (ping_) ping_->stop();
  if (expiry_) expiry_->cancel();
  if (saved_) saved_->finish();
  state_.live.remove(run_.mailbox());
}

void OperationDriver::ping_every(std::chrono::milliseconds interval) {
  if (operation_.ping_interval()) interval = *operation_.ping_interval();
  const bool is_stream = operation_.streams() && operation_.stream_form() == StreamForm::kEvents;
  if (is_stream && interval.count() > 0) ping_ = StreamPing::start(transport_.executor(), run_.mailbox(), interval);
}

void OperationDriver::keep(std::shared_ptr<SavedStream> saved, std::chrono::milliseconds window) {
  saved_ = std::move(saved);
  window_ = window;
}

namespace {

// Aborts the operation at the end of the window, unless a client reads the stream: then it waits for another window.
void expire(std::shared_ptr<asio::steady_timer> timer, std::shared_ptr<Mailbox> mailbox,
            std::shared_ptr<SavedStream> saved, std::chrono::milliseconds window) {
  timer->expires_after(window);
  timer->async_wait([timer, mailbox, saved, window](const boost::system::error_code& error) {
    if (error) return;
    if (saved->has_reader()) return expire(timer, mailbox, saved, window);
    mailbox->interrupt(std::nullopt);
  });
}

}  // namespace

// Continues the stream without its client, until the window ends.
void OperationDriver::detach() {
  if (expiry_) return;
  expiry_ = std::make_shared<asio::steady_timer>(transport_.executor());
  expire(expiry_, run_.mailbox(), saved_, window_);
}

// A comment line is not an event: it has no number and is not saved.
asio::awaitable<bool> OperationDriver::send_ping() {
  if (expiry_) co_return true;
  std::string frame;
  if (!head_sent_) frame = stream_head(kEventStream, framing_);
  head_sent_ = true;
  append_stream_part(frame, ":\n\n", framing_);
  const bool sent = co_await transport_.write(frame, write_timeout_);
  if (!sent && saved_) detach();
  co_return sent || saved_ != nullptr;
}

asio::awaitable<bool> OperationDriver::send(std::string_view data) {
  if (data.empty()) co_return true;
  if (ping_) ping_->note_sent();
  std::string numbered;
  if (saved_) {
    numbered = saved_->append(data);
    data = numbered;
    if (expiry_) co_return !saved_->is_lost();  // without a client, only a stream that can be resumed continues
    if (data.empty()) co_return true;
  }
  std::string frame;
  frame.reserve(data.size() + 512);
  const bool is_events = operation_.stream_form() == StreamForm::kEvents;
  if (!head_sent_) frame = stream_head(is_events ? kEventStream : kLineStream, framing_);
  head_sent_ = true;
  append_stream_part(frame, data, framing_);
  const bool sent = co_await transport_.write(frame, write_timeout_);
  if (!sent && saved_) detach();
  co_return sent || saved_ != nullptr;
}

void OperationDriver::fail(Outcome& outcome, const Error& error, std::string out) {
  run_.abort();
  Response response = error_response(error);
  outcome.status = response.status;
  if (!head_sent_ && !expiry_) {
    outcome.response = std::move(response);
  } else {
    operation_.fail(error, out);
    last_ = std::move(out);
  }
}

asio::awaitable<void> OperationDriver::send_parts(Outcome& outcome) {
  std::string part = std::move(outcome.response->body);
  outcome.response.reset();
  std::string frame = stream_head("application/json", framing_);
  bool has_more = true;
  while (true) {
    append_stream_part(frame, part, framing_);
    if (!has_more) append_stream_end(frame, framing_);
    outcome.connection_ok = co_await transport_.write(frame, write_timeout_);
    if (!outcome.connection_ok || !has_more) break;
    frame.clear();
    part.clear();
    const Result<bool> made = co_await run_.finish_part(part);
    if (!made) outcome.connection_ok = false;  // the missing end shows the failure
    if (!made) co_return;
    has_more = *made;
  }
  if (!framing_.is_chunked()) outcome.connection_ok = false;
}

asio::awaitable<void> OperationDriver::end_stream(Outcome& outcome) {
  if (!last_) co_return;
  outcome.connection_ok = co_await send(*last_);
  if (expiry_) outcome.connection_ok = false;
  if (!framing_.is_chunked()) outcome.connection_ok = false;
  if (!outcome.connection_ok) co_return;
  std::string end;
  append_stream_end(end, framing_);
  outcome.connection_ok = co_await transport_.write(end, write_timeout_);
}

asio::awaitable<OperationDriver::Outcome> OperationDriver::run(Clock::time_point arrival) {
  Outcome outcome = co_await drive(arrival);
  outcome.times = run_.times();
  outcome.times.end = Clock::now();
  co_return outcome;
}

asio::awaitable<OperationDriver::Outcome> OperationDriver::drive(Clock::time_point arrival) {
  Outcome outcome;
  if (const auto accepted = run_.begin(arrival); !accepted) {
    fail(outcome, accepted.error());
    co_return outcome;
  }
  outcome.has_begun = true;
  transport_.watch([this] {
    if (saved_) return detach();
    run_.mailbox()->interrupt(std::nullopt);
  });
  std::string out;
  if (operation_.streams()) {
    const Result<void> begun = co_await run_.begin_answer(out);
    if (!begun) fail(outcome, begun.error());
    if (!begun) co_return outcome;
  }
  while (!run_.is_over()) {
    const OperationRun::Progress progress = co_await run_.advance(out);
    if (progress.interrupted) {
      outcome.connection_ok = progress.error.has_value();
      if (progress.error) fail(outcome, *progress.error);
      co_return outcome;
    }
    if (progress.error) {
      fail(outcome, *progress.error, std::move(out));
      co_return outcome;
    }
    if (!operation_.streams() || run_.is_over()) continue;
    const bool is_quiet = ping_ && ping_->take_due() && out.empty();
    bool is_sent = true;
    if (is_quiet) {
      is_sent = co_await send_ping();
    } else {
      is_sent = co_await send(out);
    }
    if (!is_sent) {
      outcome.connection_ok = false;
      co_return outcome;
    }
    out.clear();
  }
  const Result<bool> made = co_await run_.finish_part(out);
  if (!made) {
    fail(outcome, made.error());
    co_return outcome;
  }
  outcome.has_more = *made;
  if (operation_.streams()) {
    last_ = std::move(out);
  } else {
    outcome.response.emplace().body = std::move(out);
  }
  co_return outcome;
}

}  // namespace quire
