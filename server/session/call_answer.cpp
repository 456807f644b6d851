#include "server/session/call_answer.h"

#include "core/base/log.h"
#include "server/ops/stream_store.h"
#include "server/run/background_run.h"
#include "server/run/operation_driver.h"
#include "server/session/saved_answer.h"
#include "server/session/shared_stream.h"
#include "server/state/settings.h"

namespace quire {

namespace asio = boost::asio;

asio::awaitable<bool> CallAnswer::give() {
  ++exchange_.state().num_calls;
  Call call = exchange_.new_call();
  if (const auto refusal = reader_.full_queues()) {
    Response response = error_response(*refusal);
    co_return co_await body_.respond_unread(std::move(response));
  }
  auto body = co_await body_.read();
  if (!body) co_return false;
  call.body = std::move(*body);
  if (exchange_.keeps_stream()) call.origin = new_origin(exchange_.state());
  const std::optional<std::size_t> none;
  co_return co_await answer(std::move(call), none);
}

asio::awaitable<bool> CallAnswer::answer(Call call, std::optional<std::size_t> num_received) {
  const std::string name = call.origin != nullptr ? shared_name(call) : std::string();
  auto parsed = co_await reader_.read(call);
  call.body = std::string();
  body_.release();
  if (!parsed) co_return false;
  if (!*parsed) co_return co_await exchange_.respond(parsed->error());
  for (const std::string& warning : (**parsed)->warnings()) {
    log::warn("request {}: {}", exchange_.request_id(), warning);
    exchange_.account().admission().fields.push_back({"X-Quire-Warning", warning});
  }
  if (const auto taken = exchange_.account().take_prompt_quota(***parsed); !taken)
    co_return co_await exchange_.respond(taken.error());
  if ((**parsed)->origin()) call.stream_name = name;
  co_return co_await drive(std::move(**parsed), call, num_received);
}

asio::awaitable<bool> CallAnswer::drive(std::unique_ptr<Operation> operation, const Call& call,
                                        std::optional<std::size_t> num_received) {
  if (operation->replay()) co_return co_await replay(*operation->replay());
  if (!operation->background_id().empty()) co_return co_await leave_running(std::move(operation), call.arrival);
  ServerState& state = exchange_.state();
  RequestAccount& account = exchange_.account();
  const ServerOptions& options = exchange_.options();
  OperationDriver::Outcome outcome;
  {
    std::shared_ptr<SavedStream> saved;
    if (operation->streams() && operation->stream_form() == StreamForm::kEvents && exchange_.keeps_stream()) {
      saved = state.streams.open(call.key_name, call.request_id, Clock::now());
    }
    if (num_received && (!saved || call.stream_name.empty())) {
      Response response = no_such_stream();
      co_return co_await exchange_.respond(std::move(response));
    }
    if (saved && num_received) saved->begin_after(*num_received);
    const std::shared_ptr<void> closed(nullptr, [&state, &call, &options, saved](void*) {
      if (saved) state.streams.close(call.key_name, call.request_id, Clock::now() + options.resume.window);
    });
    std::optional<SharedStream> shared;
    if (saved && !call.stream_name.empty())
      shared.emplace(state, call.stream_name, *operation->origin(), options.resume.window);
    OperationDriver driver(state, *exchange_.transport(), *operation, exchange_.framing(), options.timeout.write);
    driver.admit(account.admission().lease, std::exchange(account.place(), {}), options.list_window);
    if (saved) driver.keep(saved, options.resume.window);
    driver.ping_every(options.timeout.ping);
    outcome = co_await driver.run(call.arrival);
    account.note_outcome(*operation, outcome.times, outcome.has_begun);
    if (outcome.has_more) {
      exchange_.count(outcome.status);
      co_await driver.send_parts(outcome);
    } else if (!outcome.response) {
      exchange_.count(outcome.status);
      co_await driver.end_stream(outcome);
    }
  }
  operation.reset();  // frees its memory while the answer is sent
  if (outcome.response) co_return co_await exchange_.respond(std::move(*outcome.response));
  co_return outcome.connection_ok;
}

// Starts a background run and answers at once, or sends the run's saved stream.
asio::awaitable<bool> CallAnswer::leave_running(std::unique_ptr<Operation> operation, Clock::time_point arrival) {
  RequestAccount& account = exchange_.account();
  std::shared_ptr<SavedStream> stream;
  Response response;
  {
    const auto run = std::make_shared<BackgroundRun>(exchange_.state(), exchange_.transport()->executor(),
                                                     std::move(operation), account.record().key_name);
    const auto begun = run->begin(std::move(account.admission().lease), std::exchange(account.place(), {}), arrival);
    if (begun) {
      stream = run->stream();
      response.body = run->first_body();
      BackgroundRun::start(run);
    } else {
      response = error_response(begun.error());
    }
  }
  if (stream == nullptr) co_return co_await exchange_.respond(std::move(response));
  SavedAnswer answer(exchange_, std::move(stream), true);
  co_return co_await answer.give_after(0);
}

asio::awaitable<bool> CallAnswer::replay(Operation::Replay replay) {
  auto stream = exchange_.state().streams.find(exchange_.account().record().key_name, replay.id, Clock::now());
  const bool is_usable = stream && !stream->after(replay.after, nullptr).lost;
  if (!is_usable) {
    const Error error{
        ErrorKind::kInvalidRequest,
        "The events of this response are not kept, or not that many: kept are those of background responses that "
        "were created with 'stream', for some minutes after the end",
        "stream_not_found", "stream", std::nullopt};
    co_return co_await exchange_.respond(error);
  }
  SavedAnswer answer(exchange_, std::move(stream), false);
  co_return co_await answer.give_after(replay.after);
}

}  // namespace quire
