#include "server/http/operation_driver.h"

#include <algorithm>

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

namespace {

// When a list of which nothing is under way looks again for room in a queue that others fill.
constexpr std::chrono::milliseconds kListRetry{50};

}  // namespace

void LiveOperations::add(const std::shared_ptr<Mailbox>& mailbox) {
  const std::lock_guard lock(mutex_);
  live_.insert(mailbox);
}

void LiveOperations::remove(const std::shared_ptr<Mailbox>& mailbox) {
  const std::lock_guard lock(mutex_);
  live_.erase(mailbox);
}

std::size_t LiveOperations::count() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

std::size_t LiveOperations::cut(const Error& error) {
  const std::lock_guard lock(mutex_);
  for (const auto& mailbox : live_)
    mailbox->interrupt(error);
  return live_.size();
}

OperationDriver::OperationDriver(ServerState& state, Transport& transport, Operation& operation,
                                 ResponseFraming framing, std::chrono::milliseconds write_timeout)
    : state_(state),
      transport_(transport),
      operation_(operation),
      framing_(framing),
      write_timeout_(write_timeout),
      mailbox_(std::make_shared<Mailbox>(transport.executor())),
      open_(operation.requests().size(), false),
      model_(operation.summary().model),
      gaps_(state.metrics, model_) {
  state_.live.add(mailbox_);
}

OperationDriver::~OperationDriver() {
  transport_.unwatch();
  if (ping_) ping_->stop();
  if (expiry_) expiry_->cancel();
  if (saved_) saved_->finish();
  state_.live.remove(mailbox_);
  abort_open();
}

void OperationDriver::admit(QuotaTable::Lease& lease, ReservedPlace place, std::int64_t list_window) {
  lease_ = &lease;
  list_window_ = list_window;
  place_ = std::move(place);
}

void OperationDriver::close(std::size_t index) {
  open_[index] = false;
  num_sequences_ -= operation_.requests()[index]->num_choices;
}

void OperationDriver::abort_open() {
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (!open_[i]) continue;
    operation_.queue()->abort(operation_.requests()[i]->id);
    close(i);
  }
  num_submitted_ = open_.size();  // nothing follows
}

// As much of a list as may wait or run at once. Only the first prompt is refused where there is no room: a further one
// follows when one of its list has ended, or once there is room.
Result<void> OperationDriver::submit_more() {
  while (num_submitted_ < open_.size() && (num_sequences_ == 0 || num_sequences_ < list_window_)) {
    auto accepted = submit_next();
    if (accepted) continue;
    const ErrorKind kind = accepted.error().kind;
    const bool is_full = kind == ErrorKind::kUnavailable || kind == ErrorKind::kRateLimited;
    if (num_submitted_ == 0 || !is_full || accepted.error().code == "server_draining") return accepted;
    break;
  }
  return {};
}

Result<void> OperationDriver::submit_next() {
  const std::size_t index = num_submitted_;
  const auto& request = operation_.requests()[index];
  if (lease_ != nullptr) {
    auto held = lease_->hold(num_sequences_ + request->num_choices);
    if (!held) return held;
  }
  Submission submission{request, Mailbox::sink(mailbox_, index)};
  submission.continues_list = index > 0;
  submission.ticket = place_.take(operation_.queue());
  place_ = {};
  auto accepted = operation_.queue()->submit(std::move(submission));
  if (!accepted) return accepted;
  ++num_submitted_;
  open_[index] = true;
  num_sequences_ += request->num_choices;
  state_.metrics.request_params(model_, *request);
  return {};
}

void OperationDriver::note_progress(const OutputEvent& event) {
  if (event.finish && !event.finish->error) state_.metrics.engine_times(model_, *event.finish);
  if (event.finish) {
    times_.queue = std::max(times_.queue, event.finish->queue_time);
    times_.prefill = std::max(times_.prefill, event.finish->prefill_time);
    times_.decode = std::max(times_.decode, event.finish->decode_time);
  }
  if (event.tokens.empty()) return;
  const auto now = Clock::now();
  if (times_.first_token) {
    gaps_.record(std::chrono::duration<double>(now - last_token_).count());
  } else {
    times_.first_token = now;
    state_.metrics.first_token(model_, std::chrono::duration<double>(now - times_.arrival).count());
  }
  last_token_ = now;
}

void OperationDriver::take_mail(std::vector<Mail> mail, std::string& out) {
  for (Mail& each : mail) {
    if (!open_[each.index] || operation_.error()) continue;
    note_progress(each.event);
    const Request& request = *operation_.requests()[each.index];
    const std::int32_t choice = each.event.choice;
    const bool ended = each.event.finish.has_value();
    const Wanted wanted = operation_.on_event(each.index, std::move(each.event), out);
    if (wanted == Wanted::kMore) continue;
    if (wanted == Wanted::kOtherChoices) {
      operation_.queue()->abort(request.id, choice);
      continue;
    }
    // A request of one choice ended by itself with this event; any other is stopped here.
    if (!ended || request.num_choices > 1) operation_.queue()->abort(request.id);
    close(each.index);
  }
}

void OperationDriver::ping_every(std::chrono::milliseconds interval) {
  if (operation_.ping_interval()) interval = *operation_.ping_interval();
  const bool is_stream = operation_.streams() && operation_.stream_form() == StreamForm::kEvents;
  if (is_stream && interval.count() > 0) ping_ = StreamPing::start(transport_.executor(), mailbox_, interval);
}

void OperationDriver::keep(std::shared_ptr<SavedStream> saved, std::chrono::milliseconds window) {
  saved_ = std::move(saved);
  window_ = window;
}

namespace {

// Looks again while the stream is read.
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

// The client is gone, its stream is not.
void OperationDriver::detach() {
  if (expiry_) return;
  expiry_ = std::make_shared<asio::steady_timer>(transport_.executor());
  expire(expiry_, mailbox_, saved_, window_);
}

// Not an event: it has no number, and is not kept.
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
    if (expiry_) co_return true;
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
  abort_open();
  Response response = error_response(error);
  outcome.status = response.status;
  if (!head_sent_ && !expiry_) {
    outcome.response = std::move(response);
  } else {
    operation_.fail(error, out);
    last_ = std::move(out);
  }
}

asio::awaitable<void> OperationDriver::end_stream(Outcome& outcome) {
  if (!last_) co_return;
  outcome.connection_ok = co_await send(*last_);
  if (expiry_) outcome.connection_ok = false;
  if (outcome.connection_ok && framing_.minor_version == 1) {
    outcome.connection_ok = co_await transport_.write("0\r\n\r\n", write_timeout_);
  }
  if (framing_.minor_version == 0) outcome.connection_ok = false;
}

asio::awaitable<OperationDriver::Outcome> OperationDriver::run(Clock::time_point arrival) {
  times_.arrival = arrival;
  Outcome outcome = co_await drive();
  times_.end = Clock::now();
  outcome.times = times_;
  co_return outcome;
}

asio::awaitable<OperationDriver::Outcome> OperationDriver::drive() {
  Outcome outcome;
  auto accepted = submit_more();
  if (!accepted) {
    fail(outcome, accepted.error());
    co_return outcome;
  }
  transport_.watch([this] {
    if (saved_) return detach();
    mailbox_->interrupt(std::nullopt);
  });
  std::string out;
  if (operation_.streams()) operation_.begin(out);
  asio::steady_timer retry(transport_.executor());
  while (!is_over()) {
    if (num_sequences_ == 0 && !mailbox_->interrupted()) {
      retry.expires_after(kListRetry);
      co_await retry.async_wait(kUseTuple);
      accepted = submit_more();
      if (!accepted) {
        fail(outcome, accepted.error(), std::move(out));
        co_return outcome;
      }
      continue;
    }
    auto batch = co_await mailbox_->take();
    if (batch.interrupted) {
      outcome.connection_ok = batch.error.has_value();
      if (batch.error) fail(outcome, *batch.error);
      co_return outcome;
    }
    take_mail(std::move(batch.mail), out);
    if (operation_.error()) {
      fail(outcome, *operation_.error(), std::move(out));
      co_return outcome;
    }
    accepted = submit_more();
    if (!accepted) {
      fail(outcome, accepted.error(), std::move(out));
      co_return outcome;
    }
    if (!operation_.streams() || is_over()) continue;
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
  outcome.finished = true;
  operation_.finish(out);
  if (operation_.streams()) {
    last_ = std::move(out);
  } else {
    outcome.response.emplace().body = std::move(out);
  }
  co_return outcome;
}

}  // namespace quire
