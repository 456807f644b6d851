#include "server/session/socket_answer.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "core/base/log.h"
#include "server/api/common/errors.h"
#include "server/api/common/store/response_store.h"
#include "server/gate/browser_guard.h"
#include "server/ops/keys/quota.h"
#include "server/run/operation_run.h"
#include "server/session/call_reader.h"
#include "server/state/live_operations.h"
#include "server/state/settings.h"
#include "server/wire/client_budget.h"
#include "server/wire/mailbox.h"
#include "server/wire/web_socket.h"

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

// Marks the end of the reading and wakes the session.
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

// Ends the reading and the connection when the session ends.
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

// Called before the last message is sent, so that the request is counted when the client has its answer.
void note_end(RequestAccount& account, const Operation& operation, OperationTimes times) {
  times.end = Clock::now();
  account.note_outcome(operation, times, true);
  account.count(200);
}

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

std::optional<Response> SocketAnswer::refusal() const {
  const RequestHead& head = exchange_.head();
  if (!head.asks_socket || !WebSocket::is_request(head)) {
    Response response = error_response(426, "upgrade_required", "GET of this path opens a WebSocket (RFC 6455)");
    response.fields.push_back({"Upgrade", "websocket"});
    response.fields.push_back({"Sec-WebSocket-Version", "13"});
    return response;
  }
  // A page can open a socket to any site without asking first.
  if (is_cross_site(head) && !has_allowed_origin(exchange_.options().cors, head)) {
    return error_response(403, "origin_not_allowed", "This page's origin is not among security.cors_origins");
  }
  return std::nullopt;
}

asio::awaitable<bool> SocketAnswer::give() {
  exchange_.close_after();
  if (auto refused = refusal()) co_return co_await exchange_.respond(std::move(*refused));
  ServerState& state = exchange_.state();
  RequestAccount& account = exchange_.account();
  const ServerOptions& options = exchange_.options();
  const std::shared_ptr<Transport>& transport = exchange_.transport();
  const WebSocketLimits limits{static_cast<std::size_t>(options.max_body_bytes), options.max_queued_bytes,
                               options.timeout.write, options.timeout.idle};
  const auto inbox =
      std::make_shared<SocketInbox>(transport, state.bodies, account.client_name(), limits,
                                    std::make_shared<SocketMemory>(state.socket_responses, account.record().key_name));
  const ApiKey* const key = account.admission().key;
  const std::string key_hash = key != nullptr ? hash_of(*key) : std::string();
  const bool accepted = co_await inbox->socket.accept(exchange_.head());
  account.count(101);
  account.end();
  if (!accepted) co_return false;
  state.sockets.add(inbox->reader.mailbox());
  const std::shared_ptr<void> left(nullptr, [&state, inbox](void*) { state.sockets.remove(inbox->reader.mailbox()); });
  const SocketEnd end(*inbox, *transport);
  asio::co_spawn(transport->executor(), read_messages(inbox), asio::detached);
  co_await answer_messages(*inbox, key_hash);
  co_return false;
}

asio::awaitable<void> SocketAnswer::answer_messages(SocketInbox& inbox, std::string key_hash) {
  const ServerState& state = exchange_.state();
  const std::string& key_name = exchange_.account().record().key_name;
  // A socket has a longest lifetime, so that clients reconnect and follow a changing fleet.
  const auto until = Clock::now() + exchange_.options().timeout.socket;
  while (!inbox.has_ended) {
    if (inbox.reader.mailbox()->interrupted() || state.phase.load() >= ServerPhase::kRefusing) {
      co_await inbox.socket.close(CloseReason::kGoingAway, "the server shuts down");
      co_return;
    }
    // A reload, which wakes this, may have removed the key or given its name to another one.
    if (!has_key(*state.settings(), key_name, key_hash)) {
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

asio::awaitable<void> SocketAnswer::answer_message(SocketInbox& inbox, WebSocket::Message message) {
  RequestRecord record = exchange_.new_record(make_id("req-"));
  record.method = "WS";
  record.key_name = exchange_.account().record().key_name;
  RequestAccount account(exchange_.state(), exchange_.state().settings(), std::move(record));
  ++exchange_.state().num_calls;
  std::optional<Error> error = co_await answer_request(inbox, account, std::move(message));
  if (error) {
    account.record().error = error->code;
    account.count(http_status(error->kind));
    const std::string refusal = error_message(*error);
    const bool sent = co_await inbox.socket.write(refusal);
    if (!sent) inbox.has_ended = true;
  }
  account.end();
}

// Admits by the key that has the connection's key name now: a reload may have removed it.
Result<void> SocketAnswer::admit(RequestAccount& account) {
  Admission admission;
  admission.route = find_route("POST", kResponsesPath).route;
  const KeyRing& keys = account.settings().keys;
  std::optional<Error> refused;
  if (!keys.empty()) {
    admission.key = keys.named(account.record().key_name);
    if (admission.key == nullptr) {
      refused = Error{ErrorKind::kUnauthorized, "Incorrect API key provided", "invalid_api_key", "", std::nullopt};
    } else if (auto lease = exchange_.state().quotas.admit(*admission.key, Clock::now())) {
      admission.lease = std::move(*lease);
    } else {
      refused = std::move(lease.error());
    }
  }
  account.admit(std::move(admission));
  if (refused) return tl::make_unexpected(*std::move(refused));
  return {};
}

asio::awaitable<std::optional<Error>> SocketAnswer::answer_request(SocketInbox& inbox, RequestAccount& account,
                                                                   WebSocket::Message message) {
  if (const auto admitted = admit(account); !admitted) co_return admitted.error();
  CallReader reader(exchange_.state(), *exchange_.transport(), account, false);
  if (auto full = reader.full_queues()) co_return std::move(full);
  Call call = account.new_call(exchange_.head(), exchange_.on_admin());
  call.path = kResponsesPath;
  call.query.clear();
  call.socket_memory = inbox.memory;
  call.body = std::move(message.text);
  auto parsed = co_await reader.read(call);
  call.body = std::string();
  message.charge.reset();
  if (!parsed) {
    inbox.has_ended = true;
    co_return std::nullopt;
  }
  if (!*parsed) co_return parsed->error();
  co_return co_await drive(inbox, account, std::move(**parsed), call.arrival);
}

// Runs the request of one message; returns an error that occurred before its first event.
asio::awaitable<std::optional<Error>> SocketAnswer::drive(SocketInbox& inbox, RequestAccount& account,
                                                          std::unique_ptr<Operation> operation,
                                                          Clock::time_point arrival) {
  for (const std::string& warning : operation->warnings())
    log::warn("request {}: {}", account.request_id(), warning);
  if (const auto taken = account.take_prompt_quota(*operation); !taken) co_return taken.error();
  ServerState& state = exchange_.state();
  Transport& transport = *exchange_.transport();
  OperationRun run(state, transport.executor(), *operation);
  run.use_text_threads(account.client_name());
  transport.charge_also([&run] { return run.num_waiting_bytes(); });
  run.admit(account.admission().lease, std::exchange(account.place(), {}), account.options().list_window);
  inbox.running = run.mailbox();
  state.live.add(run.mailbox());
  const std::shared_ptr<void> left(nullptr, [&state, &transport, &inbox](void*) {
    state.live.remove(inbox.running);
    inbox.running = nullptr;
    transport.charge_also(nullptr);
  });
  if (const auto begun = run.begin(arrival); !begun) co_return begun.error();
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
    if (finished) note_end(account, *operation, run.times());
    sends = co_await send_events(inbox, out);
    out.clear();
  }
  if (!finished) note_end(account, *operation, run.times());
  if (!sends) inbox.has_ended = true;
  co_return std::nullopt;
}

asio::awaitable<bool> SocketAnswer::send_events(SocketInbox& inbox, const std::string& events) {
  std::string_view left = events;
  for (std::string_view message = take_message(left); !message.empty(); message = take_message(left)) {
    const bool sent = co_await inbox.socket.write(message);
    if (!sent) co_return false;
  }
  co_return true;
}

}  // namespace quire
