// Responses in the background: started for a client that need not wait, and readable again as streams.
#include "server/run/background_run.h"
#include "server/session/session.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

asio::awaitable<bool> Session::leave_running(std::unique_ptr<Operation> operation, const Call& call) {
  std::shared_ptr<SavedStream> stream;
  Response response;
  {
    const auto run =
        std::make_shared<BackgroundRun>(state_, transport_->executor(), std::move(operation), record_.key_name);
    const auto begun = run->begin(std::move(admission_.lease), std::exchange(place_, {}), call.arrival);
    if (begun) {
      stream = run->stream();
      response.body = run->first_body();
      BackgroundRun::start(run);
    } else {
      response = error_response(begun.error());
    }
  }
  if (stream == nullptr) co_return co_await respond(std::move(response));
  stream->add_reader();
  const std::shared_ptr<void> reader(nullptr, [stream](void*) { stream->remove_reader(); });
  co_return co_await read_saved(stream, 0);
}

asio::awaitable<bool> Session::replay_stream(Operation::Replay replay) {
  auto stream = state_.streams.find(record_.key_name, replay.id, Clock::now());
  const bool is_usable = stream && !stream->after(replay.after, nullptr).lost;
  if (!is_usable) {
    Response response = error_response(
        Error{ErrorKind::kInvalidRequest,
              "The events of this response are not kept, or not that many: kept are those of background responses that "
              "were created with 'stream', for some minutes after the end",
              "stream_not_found", "stream", std::nullopt});
    co_return co_await respond(std::move(response));
  }
  co_return co_await read_saved(std::move(stream), replay.after);
}

}  // namespace quire
