// ServerState: references to the parts that the sessions of one server share; ServerParts owns them. Any thread, unless
// a member says otherwise. Parts are only declared here: their users include their headers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/base/result.h"

namespace quire {

struct AdminActions;
struct ServerParts;
struct Settings;
struct SharedQuotaCounts;
struct SharedStreams;
class BackgroundResponses;
class BatchService;
class ClientBudget;
class FailureLimiter;
class LiveOperations;
class MediaService;
class Metrics;
class ModelTable;
class QuotaTable;
class RequestTrace;
class ResponseStore;
class SpanExporter;
class StatusHistory;
class StreamStore;
class TextPool;

enum class ServerPhase {
  kStarting,  // alive, no model yet
  kServing,
  kDelaying,  // draining: readiness fails, requests are still served
  kRefusing,  // new requests are refused, running ones may finish
  kStopped,
};

// Sessions wake a model by these functions of LiveModels, set by connect_models(). Any thread.
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

struct ServerState {
  ServerState(ServerParts& parts, std::shared_ptr<const Settings> settings);

  const std::shared_ptr<ResponseStore>& responses;
  const std::shared_ptr<ResponseStore>& socket_responses;  // last responses of WebSockets
  const std::shared_ptr<BackgroundResponses>& background;
  const std::shared_ptr<SpanExporter>& spans;  // null: spans are not exported
  Metrics& metrics;
  ClientBudget& bodies;   // limits unparsed bodies
  ClientBudget& answers;  // limits unread answers
  LiveOperations& live;
  LiveOperations& sockets;  // open WebSockets; a drain closes each after its answer
  QuotaTable& quotas;
  QuotaTable& batch_quotas;  // the same limits for batches, counted apart from other requests
  SharedQuotaCounts& shared_quotas;
  FailureLimiter& failures;
  StreamStore& streams;
  StatusHistory& history;
  AdminActions& admin;  // set before the first session
  RequestTrace& request_trace;
  std::atomic<ServerPhase> phase{ServerPhase::kStarting};
  std::atomic<std::int64_t> num_connections{0};
  std::atomic<std::int64_t> num_fresh{0};  // connections that have not sent a whole request head yet
  std::atomic<bool> handing_over{false};   // another process takes over the listening sockets
  std::atomic<std::int64_t> num_busy{0};   // sessions between a request's head and its response's end
  std::atomic<std::int64_t> num_calls{0};  // requests of the API since the start
  ReloadCounts reloads;
  ModelWaker waker;                 // set before the first session; without it sleeping models are not woken
  TextPool* text = nullptr;         // set before the first session
  MediaService* media = nullptr;    // set before the first session
  BatchService* batches = nullptr;  // set before the first session; null: batches are off
  std::atomic<const SharedStreams*> shared_streams{nullptr};  // set before the first session; null: streams stay here
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
  mutable std::mutex mutex_;
  std::shared_ptr<const Settings> settings_;
  std::shared_ptr<const ModelTable> models_;
};

}  // namespace quire
