// ServerState: the state that all sessions of one server share. Any thread, unless a member says otherwise.
// LiveOperations: the operations in flight, so that a drain can count and cut them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "server/api/common/model_table.h"
#include "server/api/common/store/background_responses.h"
#include "server/api/common/store/response_store.h"
#include "server/metrics/metrics.h"
#include "server/ops/keys/admin.h"
#include "server/ops/keys/failure_limiter.h"
#include "server/ops/keys/key_ring.h"
#include "server/ops/keys/quota.h"
#include "server/ops/reports/engine_trace.h"
#include "server/ops/reports/status_history.h"
#include "server/ops/stream_store.h"
#include "server/state/server_options.h"
#include "server/wire/client_budget.h"
#include "server/wire/tls.h"

namespace quire {

class BatchService;
class MediaService;
class Mailbox;
class TextPool;

enum class ServerPhase {
  kStarting,  // alive, no model yet
  kServing,
  kDelaying,  // draining: readiness fails, requests are still served
  kRefusing,  // new requests are refused, running ones may finish
  kStopped,
};

// Functions of LiveModels by which sessions wake a model, set by connect_models. Any thread.
struct ModelWaker {
  using Done = std::function<void(std::optional<Error>)>;
  std::function<void(const std::string& name, const std::string& key_name, std::int64_t body_bytes, Done done)> wake =
      &refuse;
  std::function<std::optional<std::chrono::milliseconds>(const std::string& name)> longest_wait = &never;

 private:
  static void refuse(const std::string& name, const std::string&, std::int64_t, const Done& done) {
    done(Error{ErrorKind::kUnavailable, "The model '" + name + "' is not ready", "model_loading", "model",
               std::chrono::seconds(1)});
  }
  static std::optional<std::chrono::milliseconds> never(const std::string&) { return std::nullopt; }
};

// Counts of configuration reloads. Any thread.
struct ReloadCounts {
  std::atomic<std::int64_t> num_all{0};
  std::atomic<std::int64_t> num_failed{0};
  std::atomic<bool> last_failed{false};
};

struct SharedStreams;

class LiveOperations {
 public:
  void add(const std::shared_ptr<Mailbox>& mailbox);
  void remove(const std::shared_ptr<Mailbox>& mailbox);
  std::size_t count() const;
  // Interrupts all operations with this error and returns their number.
  std::size_t cut(const Error& error);
  // Wakes all operations.
  void nudge();

 private:
  mutable std::mutex mutex_;
  std::unordered_set<std::shared_ptr<Mailbox>> live_;
};

// The settings that sessions use; a reload replaces them as a whole. Immutable after construction.
struct Settings {
  explicit Settings(const ServerOptions& server_options)
      : options(server_options), keys(server_options.security.keys), tls(open_tls(server_options.tls)) {}

  ServerOptions options;
  KeyRing keys;
  std::shared_ptr<const TlsContext> tls;  // null: plain HTTP
};

struct ServerState {
  explicit ServerState(const ServerOptions& options)
      : responses(std::make_shared<ResponseStore>(options.responses)),
        socket_responses(std::make_shared<ResponseStore>(
            ResponseStoreOptions{options.max_connections, options.responses.socket_bytes})),
        spans(open_spans(options.tracing)),
        settings_(std::make_shared<const Settings>(options)) {
    streams.set_max_bytes(options.resume.max_bytes);
  }

  const std::shared_ptr<ResponseStore> responses;
  const std::shared_ptr<ResponseStore> socket_responses;  // last responses of WebSockets
  const std::shared_ptr<BackgroundResponses> background = std::make_shared<BackgroundResponses>();
  std::atomic<ServerPhase> phase{ServerPhase::kStarting};
  std::atomic<std::int64_t> num_connections{0};
  std::atomic<std::int64_t> num_fresh{0};  // connections that have not sent a whole request head yet
  std::atomic<bool> handing_over{false};   // another process takes over the listening sockets
  std::atomic<std::int64_t> num_busy{0};   // sessions between a request's head and its response's end
  std::atomic<std::int64_t> num_calls{0};  // requests of the API since the start
  ReloadCounts reloads;
  Metrics metrics;
  ClientBudget bodies;   // limits unparsed bodies
  ClientBudget answers;  // limits unread answers
  LiveOperations live;
  LiveOperations sockets;  // open WebSockets, which a drain closes once they have answered
  QuotaTable quotas;
  QuotaTable batch_quotas;  // the same limits, counted apart: batches leave their owner's other requests alone
  SharedQuotaCounts shared_quotas;
  FailureLimiter failures;
  StreamStore streams;
  StatusHistory history;
  AdminActions admin;  // set before the first session
  ModelWaker waker;    // set before the first session; without it sleeping models are not woken
  RequestTrace request_trace;
  const std::shared_ptr<SpanExporter> spans;                  // null: spans are not exported
  TextPool* text = nullptr;                                   // set before the first session
  MediaService* media = nullptr;                              // set before the first session
  std::atomic<const SharedStreams*> shared_streams{nullptr};  // set before the first session; null: streams stay here
  BatchService* batches = nullptr;                            // set before the first session; null: batches are off
  std::function<void(std::function<void()>)> post_admin;      // runs a job on the admin thread; set before any session
  std::function<void(std::function<void()>)> post_report;  // runs a job on the reports thread; set before any session

  std::shared_ptr<const Settings> settings() const {
    const std::lock_guard lock(mutex_);
    return settings_;
  }
  void set_settings(std::shared_ptr<const Settings> settings);
  // The published table of models; null until the first one is published.
  std::shared_ptr<const ModelTable> models() const {
    const std::lock_guard lock(mutex_);
    return models_;
  }
  void set_models(std::shared_ptr<const ModelTable> models) {
    const std::lock_guard lock(mutex_);
    models_.swap(models);  // the old table is destroyed after the unlock: it may hold a model's last reference
  }

 private:
  static std::shared_ptr<SpanExporter> open_spans(const TracingOptions& options);

  mutable std::mutex mutex_;
  std::shared_ptr<const Settings> settings_;
  std::shared_ptr<const ModelTable> models_;
};

}  // namespace quire
