// Session: a download that an admin asked for: its progress as the answer, or its end.
#include "server/admin/pull_answer.h"
#include "server/session/session.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

// Waits until the download's state differs from that of `version`.
asio::awaitable<WaitResult> Session::wait_for_pull(hub::PullJob& job, std::uint64_t version) {
  const std::function<void(std::function<void(std::optional<Error>)>)> begin =
      [&job, version](std::function<void(std::optional<Error>)> done) {
        job.on_change(version, [done = std::move(done)] { done(std::nullopt); });
      };
  const std::optional<std::chrono::milliseconds> unbounded;
  co_return co_await wait_for_callback(state_, *transport_, begin, unbounded);
}

// Adds the downloaded model to the served ones, if the client asked for that.
asio::awaitable<WaitResult> Session::serve_pulled(const PullTask& task, const hub::CachedModel& model) {
  if (!task.serves) co_return WaitResult();
  ModelOrder order;
  order.model = *task.serves;
  order.model.model.path = model.path;
  const std::function<void(std::function<void(std::optional<Error>)>)> begin =
      [this, order](std::function<void(std::optional<Error>)> done) { state_.admin.order(order, std::move(done)); };
  const std::optional<std::chrono::milliseconds> unbounded;
  co_return co_await wait_for_callback(state_, *transport_, begin, unbounded);
}

// An error before the first downloaded byte has a status of its own; later ones end the stream.
asio::awaitable<bool> Session::answer_pull(const PullTask& task) {
  hub::PullJob& job = task.lease->job();
  hub::PullJob::State state = job.state();
  const bool is_whole = task.form == PullTask::Form::kWhole;
  while (!state.ended() && (is_whole || state.progress.phase == hub::PullProgress::Phase::kListing)) {
    const WaitResult waited = co_await wait_for_pull(job, state.version);
    if (waited.client_gone) co_return false;
    if (waited.error) {
      Response refusal = error_response(*waited.error);
      co_return co_await respond(std::move(refusal));
    }
    state = job.state();
  }
  if (!state.error && !is_whole) co_return co_await stream_pull(task);
  WaitResult served;
  if (!state.error) served = co_await serve_pulled(task, *state.result);
  if (served.client_gone) co_return false;
  Response response;
  if (state.error || served.error) {
    response = error_response(state.error ? *state.error : *served.error);
  } else {
    PullAnswer answer(task.form, task.is_ollama, job.model().text());
    response.body = answer.end(*state.result, task.serves ? task.serves->name : "");
  }
  co_return co_await respond(std::move(response));
}

asio::awaitable<bool> Session::stream_pull(const PullTask& task) {
  hub::PullJob& job = task.lease->job();
  PullAnswer answer(task.form, task.is_ollama, job.model().text());
  count(200);
  std::string frame = stream_head(answer.content_type(), framing());
  bool over = false;
  while (!over) {
    const hub::PullJob::State state = job.state();
    WaitResult waited;
    std::string text = answer.part(state.progress);
    if (!state.ended()) {
      append_stream_part(frame, text, framing());
      const bool sent = co_await transport_->write(frame, options().timeout.write);
      if (!sent) co_return false;
      frame.clear();
      waited = co_await wait_for_pull(job, state.version);
    } else if (state.result) {
      waited = co_await serve_pulled(task, *state.result);
    }
    if (waited.client_gone) co_return false;
    const std::optional<Error> error = state.error ? state.error : waited.error;
    over = error || state.ended();
    if (!over) continue;
    text = error ? answer.fail(*error, framing().form, request_id_)
                 : text + answer.end(*state.result, task.serves ? task.serves->name : "");
    append_stream_part(frame, text, framing());
  }
  if (head_.minor_version == 1) frame += "0\r\n\r\n";
  const bool sent = co_await transport_->write(frame, options().timeout.write);
  co_return sent&& keep_alive_&& head_.minor_version == 1;
}

}  // namespace quire
