#include "server/http/session.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <ctime>

#include "core/base/log.h"
#include "server/http/listener.h"
#include "server/http/model_peek.h"
#include "server/http/run_by.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

namespace {

// An id that can be echoed in a header and written to a log.
bool is_usable_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

asio::awaitable<void> Session::run() {
  // Not `while (co_await ...)`: GCC 12 destroys the awaited frame before it ran.
  settings_ = state_.settings();
  bool again = co_await transport_->handshake(options().timeout.header);
  while (again)
    again = co_await serve_one();
  co_await transport_->close_gracefully();
}

asio::awaitable<bool> Session::serve_one() {
  request_id_.clear();
  keep_alive_ = true;
  head_ = RequestHead{};
  parser_.emplace(static_cast<std::size_t>(options().max_header_bytes));
  admission_ = Admission{};
  record_ = RequestRecord{};
  settings_ = state_.settings();
  const bool asked_again = co_await read_head();
  if (!asked_again) co_return false;
  settings_ = state_.settings();  // a connection may have been idle for long
  const Counted busy(state_.num_busy);
  fresh_.reset();
  head_ = parser_->take_head();
  keep_alive_ = head_.keep_alive && state_.phase.load() < ServerPhase::kRefusing && !state_.handing_over.load();
  const std::string_view asked = head_.field("x-request-id");
  request_id_ = is_usable_id(asked) ? std::string(asked) : make_id("req-");
  begin_record();
  const bool answered = co_await answer();
  note_end();
  co_return answered&& keep_alive_;
}

asio::awaitable<bool> Session::read_head() {
  auto deadline = Clock::now() + options().timeout.idle;
  bool started = false;
  while (true) {
    transport_->consume(parser_->feed_head(transport_->input()));
    if (parser_->refused()) {
      const HttpRefusal refusal = *parser_->refused();
      co_await refuse_head(refusal.status, refusal.code, refusal.message);
      co_return false;
    }
    if (parser_->head_done()) co_return true;
    if (parser_->started() && !started) {
      started = true;
      deadline = Clock::now() + options().timeout.header;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const ReadStatus status = co_await transport_->fill(std::max(left, std::chrono::milliseconds(0)));
    if (status == ReadStatus::kTimeout && started) {
      co_await refuse_head(408, "request_timeout", "The request's head did not arrive in time");
    }
    if (status != ReadStatus::kMore) co_return false;
  }
}

asio::awaitable<bool> Session::answer() {
  const bool refused = co_await refuse_further_bytes();
  if (refused) co_return false;
  const Arrival arrival{is_admin_, transport_->peer() == kLocalPeer, transport_->peer(), resumes()};
  admission_ = pass_gate(state_, *settings_, head_, arrival);
  if (admission_.key) record_.key_name = admission_.key->name;
  record_.is_call = admission_.route != nullptr && admission_.route->is_api();
  if (record_.is_call && state_.spans && record_.trace.trace_id.empty()) {
    record_.trace = new_trace(state_.spans->chooses());
  }
  if (admission_.refusal) co_return co_await respond_to_head(std::move(*admission_.refusal));
  if (head_.minor_version == 1 && !head_.names_host) {
    co_await refuse(400, "missing_host", "An HTTP/1.1 request needs a Host header");
    co_return false;
  }
  const auto& route_answer = admission_.route->answer;
  if (const auto* const handler = std::get_if<StateHandler>(&route_answer)) {
    Response response = (*handler)(state_);
    co_return co_await respond_to_head(std::move(response));
  }
  if (const auto* const handler = std::get_if<MetricsHandler>(&route_answer)) {
    Response response = (*handler)(state_, admission_.sees_keys);
    co_return co_await respond_to_head(std::move(response));
  }
  if (const auto* const handler = std::get_if<PageHandler>(&route_answer)) {
    Response response = (*handler)(head_);
    co_return co_await respond_to_head(std::move(response));
  }
  if (const auto* const admin = std::get_if<AdminHandler>(&route_answer)) co_return co_await call_admin(*admin);
  if (const auto* const stored = std::get_if<StoredEndpoint>(&route_answer)) co_return co_await call_stored(*stored);
  if (admission_.route->takes_form()) co_return co_await take_upload();
  if (arrival.resumes) co_return co_await resume_stream();
  co_return co_await call_api();
}

// A client that names its request may come back for its stream.
bool Session::keeps_stream() const {
  return options().resume.window.count() > 0 && request_id_ == head_.field("x-request-id");
}

// The same request once more, by a client that has a part of its answer.
bool Session::resumes() const {
  return keeps_stream() && head_.method == "POST" && !head_.field("last-event-id").empty();
}

asio::awaitable<bool> Session::resume_stream() {
  auto body = co_await read_body();
  if (!body) co_return false;
  std::size_t number = 0;
  const std::string_view digits = head_.field("last-event-id");
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  auto stream = state_.streams.find(record_.key_name, request_id_, Clock::now());
  const bool usable =
      stream && error == std::errc() && end == digits.data() + digits.size() && !stream->after(number, nullptr).lost;
  if (!usable) {
    Response response = error_response(
        404, "stream_not_found", "There is no stream of this request id that can be gone on with after this event");
    co_return co_await respond(std::move(response));
  }
  stream->add_reader();
  const std::shared_ptr<void> reader(nullptr, [stream](void*) { stream->remove_reader(); });
  co_return co_await read_saved(stream, number);
}

asio::awaitable<bool> Session::read_saved(std::shared_ptr<SavedStream> stream, std::size_t number) {
  count(200);
  auto timer = std::make_shared<asio::steady_timer>(transport_->executor());
  bool gone = false;
  transport_->watch([&gone, timer] {
    gone = true;
    timer->cancel();
  });
  const std::shared_ptr<void> unwatched(nullptr, [this](void*) { transport_->unwatch(); });
  const auto wake = [timer] { asio::post(timer->get_executor(), [timer] { timer->cancel(); }); };
  std::string frame = stream_head(kEventStream, framing());
  while (!gone) {
    timer->expires_at(asio::steady_timer::time_point::max());
    const SavedStream::Rest rest = stream->after(number, wake);
    if (rest.lost) break;
    if (!rest.events.empty()) append_stream_part(frame, rest.events, framing());
    number = rest.last;
    const bool over = rest.finished;
    if (over && head_.minor_version == 1) frame += "0\r\n\r\n";
    bool sent = true;
    if (!frame.empty()) sent = co_await transport_->write(frame, options().timeout.write);
    if (!sent) break;
    frame.clear();
    if (over) co_return keep_alive_&& head_.minor_version == 1;
    if (rest.events.empty()) co_await timer->async_wait(kUseTuple);
  }
  co_return false;
}

// All that is known before the body.
Call Session::call_of_head() const {
  Call call;
  call.arrival = Clock::now();
  call.created = static_cast<std::int64_t>(std::time(nullptr));
  call.path = head_.path;
  call.query = head_.query;
  call.request_id = request_id_;
  call.key_name = record_.key_name;
  call.is_admin = is_admin_ || (admission_.key && admission_.key->admin);
  call.responses = state_.responses;
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
  co_return co_await drive(std::move(**parsed), call);
}

// Where its model is not ready, the request waits here, before anything of it is made, and is read again.
asio::awaitable<std::optional<Session::Parsed>> Session::parse(const Call& call) {
  const auto began = Clock::now();
  while (true) {
    auto read = co_await read_once(call);
    if (!read) co_return std::nullopt;
    if (!*read) co_return tl::make_unexpected(read->error());
    if (auto* const operation = std::get_if<std::unique_ptr<Operation>>(&**read)) co_return std::move(*operation);
    const AsleepModel model = std::get<AsleepModel>(**read);
    const Waited waited = co_await wake(model.name, call, began);
    if (waited.client_gone) co_return std::nullopt;
    if (waited.error) co_return tl::make_unexpected(*waited.error);
  }
}

// Begun again where a short body turned out to be costly. Costly work ends early where the client leaves or the server
// cuts; a stream that is kept for its client outlives the connection.
asio::awaitable<std::optional<Result<ReadCall>>> Session::read_once(const Call& call) {
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
  const auto is_cut_short = [](const Result<ReadCall>& read) { return !read && read.error().code == WorkLimit::kCode; };
  const bool is_short = call.body.size() <= static_cast<std::size_t>(BodyBudget::kSmallBody);
  const std::stop_token stop = unwanted.get_token();
  Result<ReadCall> read = co_await read_in(is_short ? TextLane::kQuick : TextLane::kLong, stop, call);
  if (is_short && is_cut_short(read) && !stop.stop_requested()) {
    read = co_await read_in(TextLane::kLong, stop, call);
  }
  if (is_cut_short(read)) {
    if (gone) co_return std::nullopt;
    read = tl::make_unexpected(shutting_down());
  }
  co_return std::move(read);
}

// The models are looked up anew each time: a request that waits while it holds them would keep others from their ends.
asio::awaitable<Result<ReadCall>> Session::read_in(TextLane lane, std::stop_token stop, const Call& call) {
  const auto service = state_.service();
  const std::int64_t max_context = admission_.key ? admission_.key->quota.max_context : 0;
  const std::string client = client_name();
  const auto read = guarded<ReadCall>(request_id_, [&]() -> Result<ReadCall> {
    if (const auto reserved = reserve_place(service->models, call); !reserved) {
      return tl::make_unexpected(reserved.error());
    }
    const WorkLimit limit(lane == TextLane::kQuick ? std::optional(kQuickTime) : std::nullopt, stop, client);
    return read_call(*admission_.route, max_context > 0 ? service->models.limited_to(max_context) : service->models,
                     call, limit);
  });
  const std::function<void(std::function<void()>)> post = [&](std::function<void()> job) {
    state_.text->post(lane, client, std::move(job));
  };
  co_return co_await run_by<Result<ReadCall>>(post, read);
}

bool Session::takes_place() const {
  const Route& route = *admission_.route;
  return route.is_queued && route.method == "POST" && std::holds_alternative<ModelEndpoint>(route.answer);
}

// The refusal that every model would meet the request with; nothing where one may take it, or has to be woken.
std::optional<Error> Session::full_queues() const {
  std::optional<Error> refusal;
  const auto service = state_.service();
  if (!takes_place() || !service) return std::nullopt;
  for (const TableEntry& model : service->models.entries()) {
    if (model.state == ModelState::kUnloaded) continue;
    if (!model.served) return std::nullopt;
    auto place = model.served->queue->reserve(record_.key_name, 0);
    if (place) return std::nullopt;
    if (!refusal) refusal = std::move(place.error());
  }
  return refusal;
}

// Before the body is parsed. A request whose model is not known yet takes its place when it is submitted.
Result<void> Session::reserve_place(const ModelTable& models, const Call& call) {
  if (!takes_place() || place_.has()) return {};
  const TableEntry* const model = peek_model(models, call.body);
  if (model == nullptr || !model->served || model->state == ModelState::kUnloaded) return {};
  auto ticket = model->served->queue->reserve(call.key_name, static_cast<std::int64_t>(call.body.size()));
  if (!ticket) return tl::make_unexpected(ticket.error());
  place_ = ReservedPlace(model->served->queue, *std::move(ticket));
  return {};
}

asio::awaitable<Waited> Session::wake(const std::string& model, const Call& call, Clock::time_point since) {
  const auto bytes = static_cast<std::int64_t>(call.body.size());
  const std::function<void(ModelWaker::Told)> begin = [&](ModelWaker::Told told) {
    state_.waker.wake(model, call.key_name, bytes, std::move(told));
  };
  auto longest = state_.waker.longest_wait(model);
  if (longest) *longest -= std::min(*longest, std::chrono::floor<std::chrono::milliseconds>(Clock::now() - since));
  place_ = {};  // it waits in the bounds of the model that sleeps
  co_return co_await wait_until_told(state_, *transport_, begin, longest);
}

// Where one key's requests are counted against what it may use, before anything is queued.
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

void Session::begin_record() {
  record_.request_id = request_id_;
  record_.method = head_.method;
  record_.path = head_.sent_path;
  record_.peer = transport_->peer();
  record_.times.arrival = Clock::now();
  if (auto trace = parse_traceparent(head_.field("traceparent"))) record_.trace = *std::move(trace);
}

void Session::note_end() {
  upload_.reset();
  place_ = {};
  admission_.lease = {};
  if (record_.times.end == Clock::time_point{}) record_.times.end = Clock::now();
  state_.request_trace.add(record_);
  log_access(record_, options().access_log);
  if (state_.spans && record_.trace.sampled) state_.spans->offer(record_);
}

// Before the last bytes of the answer: a client that has them finds its request counted, and room for the next.
void Session::count(int status) {
  place_ = {};
  admission_.lease = {};
  record_.status = status;
  state_.metrics.count_response(status);
  state_.metrics.key_request(record_);
}

void Session::note_outcome(const Operation& operation, const OperationDriver::Outcome& outcome) {
  record_.times = outcome.times;
  record_.summary = operation.summary();
  admission_.lease.take_generated(record_.summary.num_generated_tokens, outcome.times.end);
  if (outcome.finished && outcome.times.first_token) state_.metrics.finished(record_.summary, outcome.times);
}

asio::awaitable<bool> Session::drive(std::unique_ptr<Operation> operation, const Call& call) {
  OperationDriver::Outcome outcome;
  {
    std::shared_ptr<SavedStream> saved;
    const auto now = Clock::now();
    if (operation->streams() && operation->stream_form() == StreamForm::kEvents && keeps_stream()) {
      saved = state_.streams.open(record_.key_name, request_id_, now);
    }
    const std::shared_ptr<void> closed(nullptr, [this, saved](void*) {
      if (saved) state_.streams.close(record_.key_name, request_id_, Clock::now() + options().resume.window);
    });
    OperationDriver driver(state_, *transport_, *operation, framing(), options().timeout.write);
    driver.admit(admission_.lease, std::exchange(place_, {}), options().list_window);
    if (saved) driver.keep(saved, options().resume.window);
    driver.ping_every(options().timeout.ping);
    outcome = co_await driver.run(call.arrival);
    note_outcome(*operation, outcome);
    if (!outcome.response) {
      count(outcome.status);
      co_await driver.end_stream(outcome);
    }
  }
  if (outcome.response) co_return co_await respond(std::move(*outcome.response));
  if (!outcome.connection_ok) keep_alive_ = false;
  co_return outcome.connection_ok;
}

asio::awaitable<bool> Session::respond(Response response) {
  write_failure(response, framing());
  if (response.failure) {
    record_.error = response.failure->code;
    state_.metrics.count_refusal(response.failure->code);
  }
  count(response.status);
  std::string message = response_head(response, framing());
  if (head_.method != "HEAD") message += response.body;
  co_return co_await transport_->write(message, options().timeout.write) && keep_alive_;
}

asio::awaitable<void> Session::refuse(int status, const char* code, std::string_view message) {
  keep_alive_ = false;
  Response response = error_response(status, code, std::string(message));
  co_await respond(std::move(response));
}

// Logged as other requests are, with nothing of what the client sent in place of a path.
asio::awaitable<void> Session::refuse_head(int status, const char* code, std::string_view message) {
  request_id_ = make_id("req-");
  begin_record();
  co_await refuse(status, code, message);
  record_.times.end = Clock::now();
  log_access(record_, options().access_log);
}

}  // namespace quire
