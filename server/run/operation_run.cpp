#include "server/run/operation_run.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/threads/run_by.h"
#include "server/threads/text_pool.h"

namespace quire {

namespace asio = boost::asio;

namespace {

// Pause before a list without running prompts tries a full queue again.
constexpr std::chrono::milliseconds kListRetry{50};
// Largest text that an io thread makes itself.
constexpr std::int64_t kLongText = 64 * 1024;

}  // namespace

OperationRun::OperationRun(ServerState& state, const asio::any_io_executor& executor, Operation& operation)
    : state_(state),
      executor_(executor),
      operation_(operation),
      reader_(executor),
      open_(operation.requests().size(), false),
      last_tokens_(operation.requests().size()),
      model_(operation.summary().model),
      gaps_(state.metrics, model_) {}

void OperationRun::admit(QuotaTable::Lease& lease, ReservedPlace place, std::int64_t list_window) {
  lease_ = &lease;
  list_window_ = list_window;
  place_ = std::move(place);
}

void OperationRun::close(std::size_t index) {
  open_[index] = false;
  num_sequences_ -= operation_.requests()[index]->num_choices;
}

void OperationRun::abort() {
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (!open_[i]) continue;
    try {
      operation_.queue()->abort(operation_.requests()[i]->id);
    } catch (const std::bad_alloc&) {  // the sequence ends by itself at its token limit
    }
    close(i);
  }
  num_submitted_ = open_.size();  // no further request is submitted
}

Result<void> OperationRun::begin(Clock::time_point arrival) {
  times_.arrival = arrival;
  return submit_more();
}

// Submits as many prompts of a list as may wait or run at once. A full queue refuses the first prompt; further ones are
// tried again later.
Result<void> OperationRun::submit_more() {
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

Result<void> OperationRun::submit_next() {
  const std::size_t index = num_submitted_;
  const auto& request = operation_.requests()[index];
  if (lease_ != nullptr) {
    auto held = lease_->hold(num_sequences_ + request->num_choices);
    if (!held) return held;
  }
  // The metrics leave out the times of batch requests, which would hide those of users.
  Mailbox::OnEnd on_end;
  if (!request->is_background) on_end = state_.metrics.end_recorder(model_);
  Submission submission{request, Mailbox::sink(mailbox(), index, std::move(on_end))};
  submission.continues_list = index > 0 || request->is_background;
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

void OperationRun::note_progress(std::size_t index, const OutputEvent& event) {
  if (event.finish) {
    times_.queue = std::max(times_.queue, event.finish->queue_time);
    times_.prefill = std::max(times_.prefill, event.finish->prefill_time);
    times_.decode = std::max(times_.decode, event.finish->decode_time);
  }
  if (event.tokens.empty()) return;
  const auto now = Clock::now();
  if (!times_.first_token) times_.first_token = now;
  if (operation_.requests().front()->is_background) return;
  // Each choice of each prompt is a sequence with a first token and gaps of its own.
  auto& of_request = last_tokens_[index];
  of_request.resize(std::max(of_request.size(), static_cast<std::size_t>(event.choice) + 1));
  auto& last = of_request[static_cast<std::size_t>(event.choice)];
  if (last) {
    gaps_.record(std::chrono::duration<double>(now - *last).count());
  } else {
    state_.metrics.first_token(model_, std::chrono::duration<double>(now - times_.arrival).count());
  }
  last = now;
}

void OperationRun::take_mail(std::vector<Mail> mail, std::string& out) {
  for (Mail& each : mail) {
    if (!open_[each.index] || operation_.error()) continue;
    note_progress(each.index, each.event);
    const Request& request = *operation_.requests()[each.index];
    const std::int32_t choice = each.event.choice;
    const bool ended = each.event.finish.has_value();
    const Wanted wanted = operation_.on_event(each.index, std::move(each.event), out);
    if (wanted == Wanted::kMore) continue;
    if (wanted == Wanted::kOtherChoices) {
      operation_.queue()->abort(request.id, choice);
      continue;
    }
    // A request of one choice has ended with this event; one of several is aborted.
    if (!ended || request.num_choices > 1) operation_.queue()->abort(request.id);
    close(each.index);
  }
}

bool OperationRun::makes_long_text() const {
  return !client_.empty() && operation_.answer_size().num_text >= kLongText;
}

// A part is a short job, so it runs in the quick lane.
asio::awaitable<Result<bool>> OperationRun::make_text(std::function<bool()> work) {
  if (!makes_long_text()) co_return work();
  const std::string& request_id = client_;
  const auto job = guarded<bool>(request_id, [&]() -> Result<bool> { return work(); });
  const std::function<void(std::function<void()>)> post = [this](std::function<void()> each) {
    state_.text->post(TextLane::kQuick, client_, std::move(each));
  };
  co_return co_await run_by<Result<bool>>(post, job);
}

asio::awaitable<Result<void>> OperationRun::begin_answer(std::string& out) {
  const std::function<bool()> begin = [&] {
    operation_.begin(out);
    return true;
  };
  const Result<bool> begun = co_await make_text(begin);
  if (!begun) co_return tl::make_unexpected(begun.error());
  co_return Result<void>();
}

asio::awaitable<Result<bool>> OperationRun::finish_part(std::string& out) {
  const std::function<bool()> finish = [&] { return operation_.finish_part(out); };
  co_return co_await make_text(finish);
}

asio::awaitable<OperationRun::Progress> OperationRun::advance(std::string& out) {
  Progress progress;
  if (num_sequences_ == 0 && !mailbox()->interrupted()) {
    asio::steady_timer retry(executor_);
    retry.expires_after(kListRetry);
    co_await retry.async_wait(asio::as_tuple(asio::use_awaitable));
  } else {
    Mailbox::Batch batch = co_await mailbox()->take();
    if (batch.interrupted) {
      progress.interrupted = true;
      progress.error = std::move(batch.error);
      co_return progress;
    }
    const bool ends = std::ranges::any_of(batch.mail, [](const Mail& mail) { return mail.event.finish.has_value(); });
    if (ends && makes_long_text()) {
      const std::function<bool()> take = [&] {
        take_mail(std::move(batch.mail), out);
        return true;
      };
      const Result<bool> taken = co_await make_text(take);
      if (!taken) progress.error = taken.error();
      if (progress.error) co_return progress;
    } else {
      take_mail(std::move(batch.mail), out);
    }
    progress.error = operation_.error();
    if (progress.error) co_return progress;
  }
  if (auto accepted = submit_more(); !accepted) progress.error = std::move(accepted.error());
  co_return progress;
}

}  // namespace quire
