// Operation: one API call after parsing: its requests to the engine, and the code that turns the engine's events into
// its response. It knows no socket: a driver submits `requests`, feeds the events and writes the output. One thread at
// a time. Call: the data of the HTTP request for its endpoint. Endpoint: a pure function from there to an Operation.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/work_limit.h"
#include "core/engine/request_queue.h"
#include "core/request/request.h"
#include "server/api/common/background_responses.h"
#include "server/api/common/response_store.h"
#include "server/api/common/stream_origin.h"

namespace quire {

class CallMedia;

struct Call {
  std::string body;
  std::string path;
  std::string query;
  std::string request_id;  // X-Request-Id, made up where the client sent none
  std::string key_name;
  bool is_admin = false;            // by its key, or by the admin listener
  std::int32_t usual_priority = 0;  // of requests that set none
  Clock::time_point arrival{};
  std::int64_t created = 0;                                   // Unix seconds
  bool is_background = false;                                 // a line of a batch: it uses what all others leave
  std::shared_ptr<ResponseStore> responses;                   // null: none are stored
  std::shared_ptr<BackgroundResponses> background = nullptr;  // null: none run
  // How the answer is begun, so that another daemon can give it too; null: as every other.
  std::shared_ptr<const StreamOrigin> origin = nullptr;
  std::string stream_name = {};  // under which it is kept for them; empty: it is not
  // A message of a WebSocket: it keeps the last response that is not stored, for the next one to continue from.
  std::shared_ptr<SocketMemory> socket_memory = nullptr;
  WorkLimit limit = {};                        // for costly work on the text
  std::shared_ptr<CallMedia> media = nullptr;  // its pictures; null: none can be read
};

// What metrics and the access log want to know of a finished operation.
struct OperationSummary {
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_cached_tokens = 0;
  std::int64_t num_generated_tokens = 0;
  std::string finish;  // the first choice's finish reason; empty where there is none
  std::string model;
};

// What an operation still wants of a request after one of its events.
enum class Wanted {
  kMore,
  kOtherChoices,  // this event's choice is over, though the engine does not know it
  kNothing,
};

// About what an operation still has to write.
struct AnswerSize {
  std::int64_t num_kept = 0;  // bytes that are held until it is written
  std::int64_t num_text = 0;  // bytes of text that are still to be made
};

// What a stream consists of: server-sent events, or lines of JSON (Ollama).
enum class StreamForm { kEvents, kLines };

class Operation {
 public:
  virtual ~Operation() = default;

  // What to submit; empty where the response is known already. `queue` is where.
  const std::vector<std::shared_ptr<const Request>>& requests() const { return requests_; }
  const std::shared_ptr<RequestQueue>& queue() const { return queue_; }
  bool streams() const { return streams_; }
  StreamForm stream_form() const { return stream_form_; }
  // How long nothing may be sent on a stream of events until a comment line is; absent: the server's; 0: for ever.
  const std::optional<std::chrono::seconds>& ping_interval() const { return ping_interval_; }

  // Streams only: what opens the stream, appended to `out` before the first event.
  virtual void begin(std::string& out) = 0;
  // Takes one event of requests()[index]; a stream appends what is to be sent now.
  virtual Wanted on_event(std::size_t index, OutputEvent event, std::string& out) = 0;
  // After all requests ended: what closes the stream, or the whole response's body.
  virtual void finish(std::string& out) = 0;
  // Instead of finish(): appends the next part, of some kAnswerPart bytes where there is so much, and returns whether
  // another one follows.
  virtual bool finish_part(std::string& out) {
    finish(out);
    return false;
  }
  static constexpr std::size_t kAnswerPart = 128 * 1024;
  // Grows with each event; a long text is made on a text thread.
  virtual AnswerSize answer_size() const { return {}; }
  // Streams only: the error in the stream's own form, and its end.
  virtual void fail(const Error& error, std::string& out) = 0;

  // Not empty: a response that is made whether its client waits or not, which reads it by this id.
  const std::string& background_id() const { return background_id_; }
  // Background only: the response as it stands, as a body.
  virtual std::string snapshot() const { return {}; }
  // Background only: as fail(), after the client's cancelling.
  virtual void cancel(std::string& /*out*/) {}

  // Instead of an answer of its own: the rest of a saved stream.
  struct Replay {
    std::string id;
    std::size_t after = 0;  // how many of its events the client has
  };
  const std::optional<Replay>& replay() const { return replay_; }

  // Of a stream whose events follow from this and the request alone.
  const std::optional<StreamOrigin>& origin() const { return origin_; }

  // What was left out of the request, and what looks misspelt in it.
  const std::vector<std::string>& warnings() const { return warnings_; }
  void set_warnings(std::vector<std::string> warnings) { warnings_ = std::move(warnings); }

  // An error that events brought; the operation is over.
  const std::optional<Error>& error() const { return error_; }
  virtual OperationSummary summary() const = 0;

 protected:
  std::vector<std::shared_ptr<const Request>> requests_;
  std::shared_ptr<RequestQueue> queue_;  // what was submitted keeps its engine alive
  bool streams_ = false;
  std::optional<std::chrono::seconds> ping_interval_;
  StreamForm stream_form_ = StreamForm::kEvents;
  std::string background_id_;
  std::optional<Replay> replay_;
  std::optional<StreamOrigin> origin_;
  std::vector<std::string> warnings_;
  std::optional<Error> error_;
};

// An operation whose response is known after parsing: tokenizing and the like.
class ReadyOperation : public Operation {
 public:
  explicit ReadyOperation(std::string body) : body_(std::move(body)) {}
  void begin(std::string&) override {}
  Wanted on_event(std::size_t, OutputEvent, std::string&) override { return Wanted::kNothing; }
  // Once: a long body is not copied.
  void finish(std::string& out) override {
    if (out.empty()) {
      out = std::move(body_);
    } else {
      out += body_;
    }
  }
  void fail(const Error&, std::string&) override {}
  OperationSummary summary() const override { return {}; }

 private:
  std::string body_;
};

// The rest of the saved stream of that id.
class ReplayOperation final : public ReadyOperation {
 public:
  ReplayOperation(std::string id, std::size_t after) : ReadyOperation("") { replay_ = Replay{std::move(id), after}; }
};

// A fresh id: the prefix and 24 random letters and digits ("chatcmpl-...").
std::string make_id(std::string_view prefix);

// One server-sent event. `name` may be empty.
void append_sse(std::string& out, std::string_view name, std::string_view data);

}  // namespace quire
