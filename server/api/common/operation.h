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
#include "server/api/common/store/background_responses.h"
#include "server/api/common/store/response_store.h"
#include "server/api/common/stream_origin.h"

namespace quire {

class CallMedia;

struct Call {
  std::string body;
  std::string path;
  std::string query;
  std::string request_id;  // X-Request-Id, made up if the client sent none
  std::string key_name;
  bool is_admin = false;            // an admin's key, or the admin listener
  std::int32_t usual_priority = 0;  // priority of requests that set none
  Clock::time_point arrival{};
  std::int64_t created = 0;                                   // Unix seconds
  bool is_background = false;                                 // a line of a batch: runs on spare capacity only
  std::shared_ptr<ResponseStore> responses;                   // null: none are stored
  std::shared_ptr<BackgroundResponses> background = nullptr;  // null: none run
  // Reason why no answer of the call is stored; empty: it can be.
  std::string_view unstored() const {
    if (responses != nullptr && responses->enabled()) return {};
    return is_background ? "answers in a batch are not stored" : "this server stores no answers: see server.responses";
  }
  // The answer's origin, so that another daemon can give it too; null: it stays here.
  std::shared_ptr<const StreamOrigin> origin = nullptr;
  std::string stream_name = {};  // name of the shared stream; empty: it is not shared
  // A WebSocket message: keeps the last response that is not stored, for the next one to continue from.
  std::shared_ptr<SocketMemory> socket_memory = nullptr;
  WorkLimit limit = {};                        // bounds costly work on the text
  std::shared_ptr<CallMedia> media = nullptr;  // its pictures; null: none can be read
};

// A finished operation's figures for metrics and access log.
struct OperationSummary {
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_cached_tokens = 0;
  std::int64_t num_generated_tokens = 0;
  std::string finish;  // the first choice's finish reason; may be empty
  std::string model;
};

// Output of a request that the operation still needs after an event.
enum class Wanted {
  kMore,
  kOtherChoices,  // this choice is over, unknown to the engine
  kNothing,
};

// Estimated sizes of the unwritten answer.
struct AnswerSize {
  std::int64_t num_kept = 0;  // bytes held until they are written
  std::int64_t num_text = 0;  // bytes of text still to be made
};

// Format of a stream: server-sent events, or lines of JSON (Ollama).
enum class StreamForm { kEvents, kLines };

class Operation {
 public:
  virtual ~Operation() = default;

  // Requests to submit to `queue`; empty if the response is known already.
  const std::vector<std::shared_ptr<const Request>>& requests() const { return requests_; }
  const std::shared_ptr<RequestQueue>& queue() const { return queue_; }
  bool streams() const { return streams_; }
  StreamForm stream_form() const { return stream_form_; }
  // Silence on a stream of events before a comment line; absent: the server's setting; 0: no comment lines.
  const std::optional<std::chrono::seconds>& ping_interval() const { return ping_interval_; }

  // Streams only: appends the stream's opening to `out`, before the first event.
  virtual void begin(std::string& out) = 0;
  // Takes an event of requests()[index]; a stream appends the bytes to send now.
  virtual Wanted on_event(std::size_t index, OutputEvent event, std::string& out) = 0;
  // Appends the stream's end, or the whole response's body, after all requests ended.
  virtual void finish(std::string& out) = 0;
  // Replaces finish(): appends the next part of the body, about kAnswerPart bytes if it has so many, and returns
  // whether another one follows.
  virtual bool finish_part(std::string& out) {
    finish(out);
    return false;
  }
  static constexpr std::size_t kAnswerPart = 128 * 1024;
  // The size grows with each event; a long text is made on a text thread.
  virtual AnswerSize answer_size() const { return {}; }
  // Streams only: appends the error in the stream's own form, and the stream's end.
  virtual void fail(const Error& error, std::string& out) = 0;

  // Id of a background response, which is made without waiting for its client; empty for others.
  const std::string& background_id() const { return background_id_; }
  // Background only: stores the response as failed, until finish(), fail() or cancel() stores its end.
  virtual void store_begun() {}
  // Background only: the present response as a body.
  virtual std::string snapshot() const { return {}; }
  // Background only: like fail(), after the client cancelled it.
  virtual void cancel(std::string& /*out*/) {}

  // The rest of a saved stream, in place of an answer of its own.
  struct Replay {
    std::string id;
    std::size_t after = 0;  // number of its events that the client has
  };
  const std::optional<Replay>& replay() const { return replay_; }

  // Set if the stream's events depend on this origin and the request only.
  const std::optional<StreamOrigin>& origin() const { return origin_; }

  // Names everything that was ignored in the request, and fields that look misspelt.
  const std::vector<std::string>& warnings() const { return warnings_; }
  void set_warnings(std::vector<std::string> warnings) { warnings_ = std::move(warnings); }

  // An error from an event, which ends the operation.
  const std::optional<Error>& error() const { return error_; }
  virtual OperationSummary summary() const = 0;

 protected:
  std::vector<std::shared_ptr<const Request>> requests_;
  std::shared_ptr<RequestQueue> queue_;  // submitted requests keep their engine alive
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
  // To be called once: moves the body, because copying a long one is costly.
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

// Appends a server-sent event. `name` may be empty.
void append_sse(std::string& out, std::string_view name, std::string_view data);

}  // namespace quire
