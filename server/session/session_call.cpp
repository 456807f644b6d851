// Session: a call of the API: its place in the model's queue, its body parsed on a text thread, the wait for a model
// that sleeps, its operation run by the engine.
#include <ctime>

#include "core/base/log.h"
#include "server/admin/model_peek.h"
#include "server/run/media_service.h"
#include "server/session/session.h"
#include "server/threads/run_by.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

// The call as far as the head determines it.
Call Session::call_of_head() const {
  Call call;
  call.arrival = Clock::now();
  call.created = static_cast<std::int64_t>(std::time(nullptr));
  call.path = head_.path;
  call.query = head_.query;
  call.request_id = request_id_;
  call.key_name = record_.key_name;
  call.is_admin = is_admin_ || (admission_.key && admission_.key->admin);
  if (admission_.key) call.usual_priority = std::max(call.usual_priority, admission_.key->priority);
  call.responses = state_.responses;
  call.background = state_.background;
  if (admission_.route != nullptr)
    call.media = state_.media->begin(call.key_name, client_name(), admission_.route->is_queued);
  return call;
}

asio::awaitable<bool> Session::call_api() {
  ++state_.num_calls;
  Call call = call_of_head();
  if (const auto refusal = full_queues()) {
    Response response = error_response(*refusal);
    co_return co_await respond_to_head(std::move(response));
  }
  auto body = co_await read_body();
  if (!body) co_return false;
  call.body = std::move(*body);
  call.origin = new_origin();
  co_return co_await answer_call(std::move(call));
}

asio::awaitable<bool> Session::answer_call(Call call) {
  const std::string name = call.origin != nullptr ? stream_name(call) : std::string();
  auto parsed = co_await parse(call);
  call.body = std::string();
  upload_.reset();
  if (!parsed) co_return false;
  if (!*parsed) {
    Response response = error_response(parsed->error());
    co_return co_await respond(std::move(response));
  }
  for (const std::string& warning : (**parsed)->warnings()) {
    log::warn("request {}: {}", request_id_, warning);
    admission_.fields.push_back({"X-Quire-Warning", warning});
  }
  if (const auto taken = take_prompt_quota(***parsed); !taken) {
    Response response = error_response(taken.error());
    co_return co_await respond(std::move(response));
  }
  if ((**parsed)->origin()) call.stream_name = name;
  co_return co_await drive(std::move(**parsed), call);
}

// While its model is not ready, the request waits here, before anything is built from it, and is read again.
asio::awaitable<std::optional<Session::Parsed>> Session::parse(Call& call) {
  const auto began = Clock::now();
  SleepingModel asleep;  // until the request is read again: its adapter stays in memory
  while (true) {
    auto read = co_await read_once(call);
    if (!read) co_return std::nullopt;
    if (!*read) co_return tl::make_unexpected(read->error());
    if (auto* const operation = std::get_if<std::unique_ptr<Operation>>(&**read)) co_return std::move(*operation);
    WaitResult waited;
    if (std::holds_alternative<WantedMedia>(**read)) {
      waited = co_await read_media(call);
    } else {
      asleep = std::get<SleepingModel>(std::move(**read));
      waited = co_await wake(asleep, call, began);
    }
    if (waited.client_gone) co_return std::nullopt;
    if (waited.error) co_return tl::make_unexpected(*waited.error);
  }
}

// Parses again, as a long job, if a short body turned out to be costly. Costly work stops early if the client leaves or
// the server cuts it; a stream kept for its client outlives the connection.
asio::awaitable<std::optional<Result<ParsedCall>>> Session::read_once(Call& call) {
  std::stop_source unwanted;
  bool gone = false;
  if (!keeps_stream()) {
    transport_->watch([&] {
      gone = true;
      unwanted.request_stop();
    });
  }
  const std::shared_ptr<void> unwatched(nullptr, [this](void*) { transport_->unwatch(); });
  const std::stop_callback cut(state_.text->cut(), [&unwanted] { unwanted.request_stop(); });
  const auto is_cut_short = [](const Result<ParsedCall>& read) {
    return !read && read.error().code == WorkLimit::kCode;
  };
  const bool is_short = call.body.size() <= static_cast<std::size_t>(ClientBudget::kSmall);
  const std::stop_token stop = unwanted.get_token();
  Result<ParsedCall> read = co_await read_in(is_short ? TextLane::kQuick : TextLane::kLong, stop, call);
  if (is_short && is_cut_short(read) && !stop.stop_requested()) {
    read = co_await read_in(TextLane::kLong, stop, call);
  }
  if (is_cut_short(read)) {
    if (gone) co_return std::nullopt;
    read = tl::make_unexpected(shutting_down());
  }
  co_return std::move(read);
}

// Reads the table again each time: a waiting request that held it would delay the destruction of unloaded models.
asio::awaitable<Result<ParsedCall>> Session::read_in(TextLane lane, std::stop_token stop, Call& call) {
  const auto table = state_.models();
  const std::int64_t max_context = admission_.key ? admission_.key->quota.max_context : 0;
  const std::string client = client_name();
  const auto read = guarded<ParsedCall>(request_id_, [&]() -> Result<ParsedCall> {
    if (const auto reserved = reserve_place(*table, call); !reserved) {
      return tl::make_unexpected(reserved.error());
    }
    call.limit = WorkLimit(lane == TextLane::kQuick ? std::optional(kQuickTime) : std::nullopt, stop, client);
    return parse_call(*admission_.route, max_context > 0 ? table->limited_to(max_context) : *table, call);
  });
  const std::function<void(std::function<void()>)> post = [&](std::function<void()> job) {
    state_.text->post(lane, client, std::move(job));
  };
  co_return co_await run_by<Result<ParsedCall>>(post, read);
}

bool Session::takes_place() const {
  const Route& route = *admission_.route;
  return route.is_queued && route.method == "POST" && std::holds_alternative<ModelEndpoint>(route.answer);
}

// The refusal that every model would give; nothing if a model may take the request, or has to be woken.
std::optional<Error> Session::full_queues() const {
  std::optional<Error> refusal;
  const auto table = state_.models();
  if (!takes_place() || !table) return std::nullopt;
  for (const TableEntry& model : table->entries()) {
    if (model.state == ModelState::kUnloaded) continue;
    if (!model.served) return std::nullopt;
    auto place = model.served->queue->reserve(record_.key_name, 0);
    if (place) return std::nullopt;
    if (!refusal) refusal = std::move(place.error());
  }
  return refusal;
}

// Reserves before the body is parsed. A request whose model is unknown reserves when it is submitted.
Result<void> Session::reserve_place(const ModelTable& models, const Call& call) {
  if (!takes_place() || place_.has()) return {};
  const TableEntry* const model = peek_model(models, call.body);
  if (model == nullptr || !model->served || model->state == ModelState::kUnloaded) return {};
  auto ticket = model->served->queue->reserve(call.key_name, static_cast<std::int64_t>(call.body.size()));
  if (!ticket) return tl::make_unexpected(ticket.error());
  place_ = ReservedPlace(model->served->queue, *std::move(ticket));
  return {};
}

// A request that waits for an adapter keeps its place in the queue of the model.
asio::awaitable<WaitResult> Session::wake(const SleepingModel& asleep, const Call& call, Clock::time_point since) {
  const auto bytes = static_cast<std::int64_t>(call.body.size());
  const std::function<void(ModelWaker::Done)> begin = [&](ModelWaker::Done done) {
    if (asleep.adapter != nullptr) return asleep.adapter->begin(std::move(done));
    state_.waker.wake(asleep.name, call.key_name, bytes, std::move(done));
  };
  auto longest = state_.waker.longest_wait(asleep.name);
  if (longest) *longest -= std::min(*longest, std::chrono::floor<std::chrono::milliseconds>(Clock::now() - since));
  if (asleep.adapter == nullptr) place_ = {};  // the request now counts in the sleeping model's limits
  co_return co_await wait_for_callback(state_, *transport_, begin, longest);
}

asio::awaitable<WaitResult> Session::read_media(const Call& call) {
  const std::function<void(MediaService::Done)> begin = [&](MediaService::Done done) {
    state_.media->work(call.media, std::move(done));
  };
  const WaitResult waited = co_await wait_for_callback(state_, *transport_, begin, std::nullopt);
  if (waited.client_gone || waited.error) call.media->abandon();
  co_return waited;
}

// Counts the request against its key's quota, before anything is queued.
Result<void> Session::take_prompt_quota(const Operation& operation) {
  std::int64_t num_tokens = 0;
  std::int64_t num_sequences = 0;
  for (const auto& request : operation.requests()) {
    num_sequences += request->num_choices;
    num_tokens += static_cast<std::int64_t>(request->prompt.size());
    if (admission_.key != nullptr && request->priority < admission_.key->priority) {
      return invalid("'priority' must be at least " + std::to_string(admission_.key->priority) + " with this API key",
                     "priority");
    }
  }
  return admission_.lease.take_prompt(num_tokens, num_sequences, Clock::now());
}

void Session::note_outcome(const Operation& operation, const OperationDriver::Outcome& outcome) {
  record_.times = outcome.times;
  record_.summary = operation.summary();
  admission_.lease.take_generated(record_.summary.num_generated_tokens, outcome.times.end);
  if (outcome.has_begun && !record_.summary.finish.empty()) state_.metrics.finished(record_.summary, outcome.times);
}

asio::awaitable<bool> Session::drive(std::unique_ptr<Operation> operation, const Call& call) {
  if (operation->replay()) co_return co_await replay_stream(*operation->replay());
  if (!operation->background_id().empty()) co_return co_await leave_running(std::move(operation), call);
  OperationDriver::Outcome outcome;
  {
    std::shared_ptr<SavedStream> saved;
    const auto now = Clock::now();
    if (operation->streams() && operation->stream_form() == StreamForm::kEvents && keeps_stream()) {
      saved = state_.streams.open(record_.key_name, request_id_, now);
    }
    if (resume_after_ && (!saved || call.stream_name.empty())) co_return co_await refuse_to_resume();
    if (saved && resume_after_) saved->begin_after(*resume_after_);
    const std::string shared = saved ? call.stream_name : std::string();
    const SharedStreams* const sharer = state_.shared_streams.load();
    if (!shared.empty() && sharer != nullptr) sharer->begin(shared, *operation->origin(), options().resume.window);
    const std::shared_ptr<void> closed(nullptr, [this, saved, shared](void*) {
      if (!shared.empty()) end_shared(shared);
      if (saved) state_.streams.close(record_.key_name, request_id_, Clock::now() + options().resume.window);
    });
    OperationDriver driver(state_, *transport_, *operation, framing(), options().timeout.write);
    driver.admit(admission_.lease, std::exchange(place_, {}), options().list_window);
    if (saved) driver.keep(saved, options().resume.window);
    driver.ping_every(options().timeout.ping);
    outcome = co_await driver.run(call.arrival);
    note_outcome(*operation, outcome);
    if (outcome.has_more) {
      count(outcome.status);
      co_await driver.send_parts(outcome);
    } else if (!outcome.response) {
      count(outcome.status);
      co_await driver.end_stream(outcome);
    }
  }
  operation.reset();  // the answer may be long, and be read slowly
  if (outcome.response) co_return co_await respond(std::move(*outcome.response));
  if (!outcome.connection_ok) keep_alive_ = false;
  co_return outcome.connection_ok;
}

}  // namespace quire
