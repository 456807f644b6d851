// RequestQueue: the entry of requests, the only object by which network and text threads reach the engine. Any thread,
// except drain_into, wait and note_progress, which are Engine thread only. It checks the bounds before a request costs
// more. Invariant: a submitted request gets exactly one finish event per choice in every case.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/result.h"
#include "core/base/thread_role.h"
#include "core/request/request.h"

namespace quire {

// Error for requests that end or are refused because the server shuts down.
Error server_draining(std::string message);

// Bounds of the waiting requests. For a key, 0 is no bound. A request counts once for each choice.
struct QueueOptions {
  std::int64_t max_queued_requests = 1024;
  std::int64_t max_queued_tokens = 4 << 20;
  std::int64_t max_queued_bytes = std::int64_t{256} << 20;  // request bodies that wait to be parsed or scheduled
  std::int64_t max_queued_requests_per_key = 0;
  std::int64_t max_queued_tokens_per_key = 0;
  std::int64_t max_queued_bytes_per_key = 0;
  double max_queue_time_s = 0.0;  // a request that waited longer without starting is refused with 503; 0: no bound
};

// Recent rate at which waiting requests start while the engine works, from which Retry-After is computed. 0: not yet
// known.
struct ServiceRate {
  double requests_per_second = 0.0;
  double prompt_tokens_per_second = 0.0;
};

class RequestQueue;

// A request's share of the queue's limits, released when it starts to run or is destroyed, whichever is first.
// One thread at a time; movable. Must not outlive its queue.
class QueueTicket {
 public:
  QueueTicket() = default;
  QueueTicket(QueueTicket&& other) noexcept;
  QueueTicket& operator=(QueueTicket&& other) noexcept;
  ~QueueTicket() { give_back(); }
  void give_back();

 private:
  friend class RequestQueue;
  RequestQueue* queue_ = nullptr;
  std::string key_name_;
  std::int64_t num_requests_ = 0;
  std::int64_t num_tokens_ = 0;
  std::int64_t num_bytes_ = 0;
};

// A new request with its sink. `ticket` comes from reserve(); submit() reserves if it is empty.
struct Submission {
  std::shared_ptr<const Request> request;
  std::shared_ptr<OutputSink> sink;
  QueueTicket ticket = {};
  bool continues_list = false;  // a further prompt of a list: these may fill half of the queue
};

// Request from outside to end a request or one of its choices.
struct Abort {
  std::string request_id;
  std::optional<std::int32_t> choice;  // absent: all
};

class RequestQueue {
 public:
  explicit RequestQueue(const QueueOptions& options);
  ~RequestQueue() { submissions_.clear(); }  // tickets are returned while the queue still exists
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Takes a place for a request of `body_bytes` before it is parsed or tokenized. Refuses with kUnavailable (draining,
  // failed, or the server's bound) or kRateLimited (the key's bound); retry_after comes from the measured service rate.
  // If the bound on tokens is already reached, the prompt is not tokenized. A request larger than a bound by itself is
  // kInvalidRequest: waiting would not help.
  Result<QueueTicket> reserve(const std::string& key_name, std::int64_t body_bytes);
  // Hands the request to the engine; refuses as reserve() does, now with its number of tokens known.
  Result<void> submit(Submission submission);
  // Ends the request, or one choice of it (its text met a stop string), within one step; unknown ids are ignored.
  void abort(std::string request_id, std::optional<std::int32_t> choice = std::nullopt);
  // New submissions are refused with this error from now on.
  void close(SharedError reason);
  void close();  // because the server is draining
  void wake();

  // The error that a request would get if the server's bounds were reached.
  Error overloaded() const;
  QueueOptions options() const;
  // Applies from the next request on.
  void reconfigure(const QueueOptions& options, std::map<std::string, double> key_weights);

  // Moves all arrivals into the vectors (cleared first, capacity kept).
  void drain_into(std::vector<Submission>& submissions, std::vector<Abort>& aborts) QUIRE_REQUIRES(kEngineThread);
  // The weights set by reconfigure() since the last call; nothing if it was not called.
  std::optional<std::map<std::string, double>> take_key_weights() QUIRE_REQUIRES(kEngineThread);
  // Blocks until something arrives, wake(), close(), or `until`.
  void wait(std::optional<Clock::time_point> until) QUIRE_REQUIRES(kEngineThread);
  void note_progress(ServiceRate rate) QUIRE_REQUIRES(kEngineThread);
  // True from an arrival until drain_into(): a step may end early for it. Other threads set it too if they need the
  // step to end.
  std::atomic<bool>& interrupt() { return interrupt_; }

 private:
  friend class QueueTicket;
  struct Usage {
    std::int64_t num_requests = 0;
    std::int64_t num_tokens = 0;
    std::int64_t num_bytes = 0;
  };
  // The first bound that adding the given amounts would break, as an error; requires mutex_.
  std::optional<Error> refusal(const std::string& key_name, Usage added, bool continues_list) const;
  static bool larger_by_itself(const Usage& added, const Usage& bounds);
  static bool exceeds(const Usage& used, const Usage& added, const Usage& bounds);
  void add(const std::string& key_name, Usage added);
  void remove(const QueueTicket& ticket);
  std::chrono::seconds retry_after(const Usage& queued) const;

  QueueOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Submission> submissions_;
  std::vector<Abort> aborts_;
  Usage total_;
  std::unordered_map<std::string, Usage> per_key_;  // keys with something queued
  ServiceRate rate_;
  // Allocated in advance, so that shutting down allocates nothing.
  const SharedError shutting_down_;
  SharedError closed_;
  std::optional<std::map<std::string, double>> key_weights_;
  bool woken_ = false;
  std::atomic<bool> interrupt_{false};
};

}  // namespace quire
