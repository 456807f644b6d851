// Session: the Responses API over a WebSocket: each message of the client is a request, whose events are messages. One
// request is answered at a time; the next message waits, and those behind it in the client's connection.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "core/base/log.h"
#include "server/api/common/errors.h"
#include "server/session/browser_guard.h"
#include "server/session/cors.h"
#include "server/session/session.h"
#include "server/wire/web_socket.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr const char* kResponsesPath = "/v1/responses";

std::string error_message(const Error& error) {
  Json message{{"type", "error"}, {"status", http_status(error.kind)}};
  message["error"] = Json::parse(error_body(error))["error"];
  return dump_json(message);
}

// Takes the data of the next event from a stream's text; empty: no event is left.
std::string_view take_message(std::string_view& events) {
  constexpr std::string_view kData = "data: ";
  while (!events.empty()) {
    const std::string_view line = events.substr(0, events.find('\n'));
    events.remove_prefix(std::min(line.size() + 1, events.size()));
    if (line.starts_with(kData)) return line.substr(kData.size());
  }
  return {};
}

}  // namespace

// State that the reading coroutine and the session share, on one thread.
struct SocketInbox {
  SocketInbox(const std::shared_ptr<Transport>& transport, ClientBudget& budget, std::string client,
              const WebSocketLimits& limits, std::shared_ptr<SocketMemory> last_response)
      : socket(transport, budget, std::move(client), limits),
        reader(transport->executor()),
        taken(transport->executor()),
        memory(std::move(last_response)) {}

  WebSocket socket;
  MailboxReader reader;  // woken by a message or the connection's end, interrupted by a drain
  std::optional<WebSocket::Message> message;
  asio::steady_timer taken;
  std::shared_ptr<Mailbox> running;  // mailbox of the request being answered; null: none
  std::shared_ptr<SocketMemory> memory;
  bool has_ended = false;
};

namespace {

std::string hash_of(const ApiKey& key) {
  return std::string(key.hash.begin(), key.hash.end());
}

// Returns whether the named key is still the one that opened the connection; without keys, the hash is empty.
bool has_key(const Settings& settings, const std::string& name, const std::string& hash) {
  const ApiKey* const key = settings.keys.named(name);
  return settings.keys.empty() ? hash.empty() : key != nullptr && hash_of(*key) == hash;
}

// Marks the end of the reading, for whatever reason, and wakes the session.
struct ReadingEnd {
  explicit ReadingEnd(SocketInbox& of) : inbox(of) {}
  ~ReadingEnd() {
    inbox.has_ended = true;
    if (inbox.running) inbox.running->interrupt(std::nullopt);
    inbox.reader.mailbox()->nudge();
  }
  ReadingEnd(const ReadingEnd&) = delete;
  ReadingEnd& operator=(const ReadingEnd&) = delete;

  SocketInbox& inbox;
};

// However the session ends, the reading ends with it, and the connection.
struct SocketEnd {
  SocketEnd(SocketInbox& its_inbox, Transport& its_transport) : inbox(its_inbox), transport(its_transport) {}
  ~SocketEnd() {
    inbox.has_ended = true;
    inbox.taken.cancel();
    transport.close();
  }
  SocketEnd(const SocketEnd&) = delete;
  SocketEnd& operator=(const SocketEnd&) = delete;

  SocketInbox& inbox;
  Transport& transport;
};

asio::awaitable<void> read_messages(std::shared_ptr<SocketInbox> inbox) {
  const ReadingEnd end(*inbox);
  while (!inbox->has_ended) {
    auto message = co_await inbox->socket.read();
    if (!message) break;
    inbox->message = std::move(message);
    inbox->reader.mailbox()->nudge();
    while (inbox->message && !inbox->has_ended) {
      inbox->taken.expires_at(asio::steady_timer::time_point::max());
      co_await inbox->taken.async_wait(kUseTuple);
    }
  }
}

}  // namespace

std::optional<Response> Session::socket_refusal() const {
  if (!head_.asks_socket || !WebSocket::is_request(head_)) {
    Response response = error_response(426, "upgrade_required", "GET of this path opens a WebSocket (RFC 6455)");
    response.fields.push_back({"Upgrade", "websocket"});
    return response;
  }
  // A page can open a socket to any site without asking first.
  if (is_cross_site(head_) && !has_allowed_origin(options().cors, head_)) {
    return error_response(403, "origin_not_allowed", "This page's origin is not among security.cors_origins");
  }
  return std::nullopt;
}

asio::awaitable<bool> Session::serve_socket() {
  keep_alive_ = false;
  if (auto refusal = socket_refusal()) co_return co_await respond(std::move(*refusal));
  const WebSocketLimits limits{static_cast<std::size_t>(options().max_body_bytes), options().max_queued_bytes,
                               options().timeout.write, options().timeout.idle};
  const auto inbox =
      std::make_shared<SocketInbox>(transport_, state_.bodies, client_name(), limits,
                                    std::make_shared<SocketMemory>(state_.socket_responses, record_.key_name));
  const std::string key_hash = admission_.key != nullptr ? hash_of(*admission_.key) : std::string();
  const bool accepted = co_await inbox->socket.accept(head_);
  count(101);
  note_end();
  if (!accepted) co_return false;
  state_.sockets.add(inbox->reader.mailbox());
  const std::shared_ptr<void> left(nullptr, [this, inbox](void*) { state_.sockets.remove(inbox->reader.mailbox()); });
  const SocketEnd end(*inbox, *transport_);
  asio::co_spawn(transport_->executor(), read_messages(inbox), asio::detached);
  co_await answer_messages(*inbox, key_hash);
  co_return false;
}

asio::awaitable<void> Session::answer_messages(SocketInbox& inbox, std::string key_hash) {
  // Afterwards a client opens another connection, so that connections follow a changing fleet.
  const auto until = Clock::now() + options().timeout.socket;
  while (!inbox.has_ended) {
    if (inbox.reader.mailbox()->interrupted() || state_.phase.load() >= ServerPhase::kRefusing) {
      co_await inbox.socket.close(CloseReason::kGoingAway, "the server shuts down");
      co_return;
    }
    // A reload, which wakes this, may have removed the key or given its name to another one.
    if (!has_key(*state_.settings(), record_.key_name, key_hash)) {
      co_await inbox.socket.close(CloseReason::kNotAllowed, "the API key is not valid any more");
      co_return;
    }
    if (!inbox.message) {
      co_await inbox.reader.mailbox()->take();
      continue;
    }
    WebSocket::Message message = std::move(*inbox.message);
    inbox.message.reset();
    inbox.taken.cancel();
    if (Clock::now() > until) {
      const std::string refusal =
          error_message(Error{ErrorKind::kInvalidRequest, "The connection has reached its longest time: open another",
                              "websocket_connection_limit_reached", "", std::nullopt});
      co_await inbox.socket.write(refusal);
      co_await inbox.socket.close(CloseReason::kDone, "the connection has reached its longest time");
      co_return;
    }
    co_await answer_message(inbox, std::move(message));
  }
}

// The current key of that name: a reload may have removed it.
Result<void> Session::admit_message(const std::string& key_name) {
  admission_ = Admission{};
  admission_.route = find_route("POST", kResponsesPath).route;
  if (!settings_->keys.empty()) {
    admission_.key = settings_->keys.named(key_name);
    if (admission_.key == nullptr) {
      return failure(ErrorKind::kUnauthorized, "Incorrect API key provided", "invalid_api_key");
    }
    auto lease = state_.quotas.admit(*admission_.key, Clock::now());
    if (!lease) return tl::make_unexpected(lease.error());
    admission_.lease = std::move(*lease);
  }
  if (auto full = full_queues()) return tl::make_unexpected(*std::move(full));
  return {};
}

asio::awaitable<void> Session::answer_message(SocketInbox& inbox, WebSocket::Message message) {
  const std::string key_name = record_.key_name;
  settings_ = state_.settings();
  record_ = RequestRecord{};
  request_id_ = make_id("req-");
  begin_record();
  record_.method = "WS";
  record_.is_call = true;
  record_.key_name = key_name;
  ++state_.num_calls;
  Call call = call_of_head();
  call.path = kResponsesPath;
  call.query.clear();
  call.socket_memory = inbox.memory;
  std::optional<Error> error;
  if (const auto admitted = admit_message(key_name); !admitted) {
    error = admitted.error();
  } else {
    if (admission_.key) call.usual_priority = std::max(call.usual_priority, admission_.key->priority);
    call.body = std::move(message.text);
    auto parsed = co_await parse(call);
    call.body = std::string();
    message.charge.reset();
    if (!parsed) {
      inbox.has_ended = true;
    } else if (!*parsed) {
      error = parsed->error();
    } else {
      error = co_await drive_message(inbox, std::move(**parsed), call);
    }
  }
  if (error) {
    record_.error = error->code;
    count(http_status(error->kind));
    const std::string refusal = error_message(*error);
    const bool sent = co_await inbox.socket.write(refusal);
    if (!sent) inbox.has_ended = true;
  }
  note_end();
}

// Runs the request of one message; returns an error that occurred before its first event.
asio::awaitable<std::optional<Error>> Session::drive_message(SocketInbox& inbox, std::unique_ptr<Operation> operation,
                                                             const Call& call) {
  for (const std::string& warning : operation->warnings())
    log::warn("request {}: {}", request_id_, warning);
  if (const auto taken = take_prompt_quota(*operation); !taken) co_return taken.error();
  OperationRun run(state_, transport_->executor(), *operation);
  run.use_text_threads(client_name());
  transport_->charge_also([&run] { return run.num_waiting_bytes(); });
  run.admit(admission_.lease, std::exchange(place_, {}), options().list_window);
  inbox.running = run.mailbox();
  state_.live.add(run.mailbox());
  const std::shared_ptr<void> left(nullptr, [this, &inbox](void*) {
    state_.live.remove(inbox.running);
    inbox.running = nullptr;
    transport_->charge_also(nullptr);
  });
  if (const auto begun = run.begin(call.arrival); !begun) co_return begun.error();
  std::string out;
  const Result<void> opened = co_await run.begin_answer(out);
  if (!opened) co_return opened.error();
  bool finished = false;
  bool sends = true;
  while (sends && !finished) {
    OperationRun::Progress progress;
    if (!run.is_over()) progress = co_await run.advance(out);
    if (inbox.has_ended || (progress.interrupted && !progress.error)) break;
    if (progress.error) {
      run.abort();
      operation->fail(*progress.error, out);
      finished = true;
    } else if (run.is_over()) {
      const Result<bool> made = co_await run.finish_part(out);
      if (!made) operation->fail(made.error(), out);
      finished = true;
    }
    if (finished) note_message_end(*operation, run.times());
    sends = co_await send_events(inbox, out);
    out.clear();
  }
  if (!finished) note_message_end(*operation, run.times());
  if (!sends) inbox.has_ended = true;
  co_return std::nullopt;
}

// Counts before the last message: a client that has it finds its request counted.
void Session::note_message_end(const Operation& operation, const OperationTimes& times) {
  OperationDriver::Outcome outcome;
  outcome.has_begun = true;
  outcome.times = times;
  outcome.times.end = Clock::now();
  note_outcome(operation, outcome);
  count(200);
}

asio::awaitable<bool> Session::send_events(SocketInbox& inbox, const std::string& events) {
  std::string_view left = events;
  for (std::string_view message = take_message(left); !message.empty(); message = take_message(left)) {
    const bool sent = co_await inbox.socket.write(message);
    if (!sent) co_return false;
  }
  co_return true;
}

}  // namespace quire
