#include "server/session/download_answer.h"

#include "server/admin/pull_answer.h"

namespace quire {

namespace asio = boost::asio;

// Waits until the download's state differs from that of `version`.
asio::awaitable<WaitResult> DownloadAnswer::wait(std::uint64_t version) {
  const CallbackStart begin = [this, version](std::function<void(std::optional<Error>)> done) {
    job_.on_change(version, [done = std::move(done)] { done(std::nullopt); });
  };
  co_return co_await wait_for_callback(exchange_.state(), *exchange_.transport(), begin, kUnlimitedWait);
}

// Adds the downloaded model to the served ones, if the client asked for that.
asio::awaitable<WaitResult> DownloadAnswer::serve(const hub::CachedModel& model) {
  if (!task_.serve) co_return WaitResult();
  const CallbackStart begin = [this, &model](std::function<void(std::optional<Error>)> done) {
    task_.serve(model.path, std::move(done));
  };
  co_return co_await wait_for_callback(exchange_.state(), *exchange_.transport(), begin, kUnlimitedWait);
}

// An error before the first downloaded byte has a status of its own; later ones end the stream.
asio::awaitable<bool> DownloadAnswer::give() {
  hub::PullJob::State state = job_.state();
  const bool is_whole = task_.form == PullTask::Form::kWhole;
  while (!state.ended() && (is_whole || state.progress.phase == hub::PullProgress::Phase::kListing)) {
    const WaitResult waited = co_await wait(state.version);
    if (waited.client_gone) co_return false;
    if (waited.error) co_return co_await exchange_.respond(*waited.error);
    state = job_.state();
  }
  if (!state.error && !is_whole) co_return co_await stream();
  WaitResult served;
  if (!state.error) served = co_await serve(*state.result);
  if (served.client_gone) co_return false;
  const std::optional<Error> error = state.error ? state.error : served.error;
  if (error) co_return co_await exchange_.respond(*error);
  PullAnswer answer(task_.form, task_.is_ollama, job_.model().text());
  Response response;
  response.body = answer.end(*state.result, task_.served_name);
  co_return co_await exchange_.respond(std::move(response));
}

asio::awaitable<bool> DownloadAnswer::stream() {
  PullAnswer answer(task_.form, task_.is_ollama, job_.model().text());
  exchange_.count(200);
  const ResponseFraming framing = exchange_.framing();
  std::string frame = stream_head(answer.content_type(), framing);
  bool over = false;
  while (!over) {
    const hub::PullJob::State state = job_.state();
    WaitResult waited;
    std::string text = answer.part(state.progress);
    if (!state.ended()) {
      append_stream_part(frame, text, framing);
      const bool sent = co_await exchange_.write(frame);
      if (!sent) co_return false;
      frame.clear();
      waited = co_await wait(state.version);
    } else if (state.result) {
      waited = co_await serve(*state.result);
    }
    if (waited.client_gone) co_return false;
    const std::optional<Error> error = state.error ? state.error : waited.error;
    over = error || state.ended();
    if (!over) continue;
    text = error ? answer.fail(*error, framing.form, exchange_.request_id())
                 : text + answer.end(*state.result, task_.served_name);
    append_stream_part(frame, text, framing);
  }
  append_stream_end(frame, framing);
  const bool sent = co_await exchange_.write(frame);
  co_return sent&& framing.is_chunked();
}

}  // namespace quire
