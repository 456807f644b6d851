// Session: one request of a connection, from its first byte to the last of its answer. Connection: a connection as one
// coroutine with one session after another; between two of them it holds only its transport. Both run on the
// connection's io thread. Invariants: a request is answered exactly once; when the coroutine ends early, its requests
// in the engine are aborted.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>

#include "server/ops/shared_streams.h"
#include "server/router.h"
#include "server/run/operation_driver.h"
#include "server/session/gate.h"
#include "server/state/callback_wait.h"
#include "server/state/server_state.h"
#include "server/threads/text_pool.h"
#include "server/wire/client_budget.h"
#include "server/wire/request_parser.h"
#include "server/wire/transport.h"
#include "server/wire/web_socket.h"

namespace quire {

struct SocketInbox;

// Adds to a counter for its lifetime.
class Counted {
 public:
  explicit Counted(std::atomic<std::int64_t>& counter, std::int64_t amount = 1) : counter_(counter), amount_(amount) {
    counter_ += amount_;
  }
  ~Counted() { counter_ -= amount_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::int64_t>& counter_;
  std::int64_t amount_;
};

class Session {
 public:
  // `is_admin`: the connection arrived on the admin listener.
  Session(ServerState& state, std::shared_ptr<Transport> transport, bool is_admin)
      : state_(state),
        transport_(std::move(transport)),
        is_admin_(is_admin),
        settings_(state.settings()),
        parser_(static_cast<std::size_t>(settings_->options.max_header_bytes)) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns false if no request arrived before `idle_until`, or if it was refused.
  boost::asio::awaitable<bool> read_head(Clock::time_point idle_until);
  // Answers the request whose head was read. Returns, like all functions that answer, whether the connection can take
  // another request.
  boost::asio::awaitable<bool> serve();

 private:
  using Parsed = Result<std::unique_ptr<Operation>>;

  // session.cpp
  boost::asio::awaitable<bool> answer();
  boost::asio::awaitable<void> end_failed(const Error& error, std::uint64_t num_written_before);
  void begin_record();
  void note_end();
  void count(int status);
  boost::asio::awaitable<bool> respond(Response response);
  boost::asio::awaitable<bool> respond_with_report(std::function<Response()> make);
  void limit_reader();
  boost::asio::awaitable<void> refuse(int status, const char* code, std::string_view message);
  boost::asio::awaitable<void> refuse_head(int status, const char* code, std::string_view message);

  // session_background.cpp
  boost::asio::awaitable<bool> leave_running(std::unique_ptr<Operation> operation, const Call& call);
  boost::asio::awaitable<bool> replay_stream(Operation::Replay replay);

  // session_socket.cpp
  std::optional<Response> socket_refusal() const;
  boost::asio::awaitable<bool> serve_socket();
  // `key_hash`: hash of the key that opened the connection; empty without a key.
  boost::asio::awaitable<void> answer_messages(SocketInbox& inbox, std::string key_hash);
  Result<void> admit_message(const std::string& key_name);
  boost::asio::awaitable<void> answer_message(SocketInbox& inbox, WebSocket::Message message);
  boost::asio::awaitable<std::optional<Error>> drive_message(SocketInbox& inbox, std::unique_ptr<Operation> operation,
                                                             const Call& call);
  void note_message_end(const Operation& operation, const OperationTimes& times);
  boost::asio::awaitable<bool> send_events(SocketInbox& inbox, const std::string& events);

  // session_body.cpp
  // nullopt: refused, and answered.
  boost::asio::awaitable<std::optional<std::string>> read_body();
  // Consumes the string; false: the rest is not wanted.
  using BodyDrain = std::function<boost::asio::awaitable<bool>(std::string& bytes)>;
  boost::asio::awaitable<bool> take_body(std::string* body, const BodyDrain* drain = nullptr);
  // Returns false if there is no memory for the bytes, after refusing the client.
  boost::asio::awaitable<bool> charge_body(std::size_t num_bytes, std::string& body);
  // Returns true after refusing bytes that follow a closing request.
  boost::asio::awaitable<bool> refuse_further_bytes();
  boost::asio::awaitable<bool> respond_to_head(Response response);
  boost::asio::awaitable<void> refuse_overloaded();
  std::string client_name() const;

  // session_call.cpp
  boost::asio::awaitable<bool> call_api();
  boost::asio::awaitable<bool> answer_call(Call call);
  Call call_of_head() const;
  // nullopt: the client left.
  boost::asio::awaitable<std::optional<Parsed>> parse(Call& call);
  boost::asio::awaitable<std::optional<Result<ParsedCall>>> read_once(Call& call);
  boost::asio::awaitable<Result<ParsedCall>> read_in(TextLane lane, std::stop_token stop, Call& call);
  boost::asio::awaitable<WaitResult> read_media(const Call& call);
  bool takes_place() const;
  std::optional<Error> full_queues() const;
  Result<void> reserve_place(const ModelTable& models, const Call& call);
  boost::asio::awaitable<WaitResult> wake(const SleepingModel& asleep, const Call& call, Clock::time_point since);
  Result<void> take_prompt_quota(const Operation& operation);
  void note_outcome(const Operation& operation, const OperationDriver::Outcome& outcome);
  boost::asio::awaitable<bool> drive(std::unique_ptr<Operation> operation, const Call& call);

  // session_resume.cpp
  bool keeps_stream() const;
  bool resumes() const;
  boost::asio::awaitable<bool> resume_stream();
  boost::asio::awaitable<bool> refuse_to_resume();
  void end_shared(const std::string& name) noexcept;
  std::string stream_name(const Call& call) const;
  std::shared_ptr<const StreamOrigin> new_origin() const;
  boost::asio::awaitable<bool> resume_elsewhere(std::string body, std::size_t number);
  boost::asio::awaitable<SharedStreams::Taken> take_stream(std::string name);
  boost::asio::awaitable<bool> read_saved(std::shared_ptr<SavedStream> stream, std::size_t number);

  // session_admin.cpp
  boost::asio::awaitable<bool> call_admin(AdminHandler handler);
  boost::asio::awaitable<Response> finish_admin(const AdminTask& task);

  // session_pull.cpp: the module `hub`
  boost::asio::awaitable<WaitResult> wait_for_pull(hub::PullJob& job, std::uint64_t version);
  boost::asio::awaitable<WaitResult> serve_pulled(const PullTask& task, const hub::CachedModel& model);
  boost::asio::awaitable<bool> answer_pull(const PullTask& task);
  boost::asio::awaitable<bool> stream_pull(const PullTask& task);

  // session_files.cpp: the module `batches`
  boost::asio::awaitable<bool> call_stored(StoredEndpoint endpoint);
  boost::asio::awaitable<bool> send_content(StoredAnswer answer);
  boost::asio::awaitable<bool> take_upload();

  ResponseFraming framing() const {
    return {head_.minor_version, keep_alive_, request_id_, &admission_.fields, error_form(head_.path)};
  }
  const ServerOptions& options() const { return settings_->options; }

  ServerState& state_;
  std::shared_ptr<Transport> transport_;
  bool is_admin_;
  std::shared_ptr<const Settings> settings_;
  RequestParser parser_;
  RequestHead head_;
  Admission admission_;
  ReservedPlace place_;                         // place in the model's queue until submission
  std::optional<ClientBudget::Charge> upload_;  // from the body's first byte until it is parsed
  RequestRecord record_;
  std::string request_id_;
  std::optional<std::size_t> resume_after_;  // number of events that the client has from another daemon
  bool keep_alive_ = true;
};

class Connection {
 public:
  Connection(ServerState& state, std::shared_ptr<Transport> transport, bool is_admin)
      : state_(state), transport_(std::move(transport)), is_admin_(is_admin), fresh_(std::in_place, state.num_fresh) {}

  boost::asio::awaitable<void> run();

 private:
  // Returns false if the connection can take no further request.
  boost::asio::awaitable<bool> serve_next(Clock::time_point idle_until);

  ServerState& state_;
  const std::shared_ptr<Transport> transport_;
  const bool is_admin_;
  std::optional<Counted> fresh_;  // set until the first request
};

}  // namespace quire
