// RequestQueue: the door in, the only object that network and text threads touch to reach the engine. Any thread, except
// drain_into and wait, which are Engine thread only. Bounds are decided here, before a request costs anything more.
// Invariant: a submitted request gets exactly one finish event per choice, whatever happens to it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/engine/request.h"

namespace quire {

struct QueueOptions {
  std::int64_t max_queued_requests = 1024;
  std::int64_t max_queued_tokens = 4 << 20;
  std::int64_t max_queued_bytes = std::int64_t{256} << 20;  // request bodies that wait to be parsed or scheduled
};

// One message to the engine: a new request with its sink, or the id of one to abort.
struct Submission {
  std::shared_ptr<const Request> request;
  std::shared_ptr<OutputSink> sink;
};

class RequestQueue {
 public:
  explicit RequestQueue(const QueueOptions& options) : options_(options) {}

  // Refuses with kUnavailable (draining, or the server's bound) or kRateLimited; retry_after is filled in by the measured rate.
  Result<void> submit(Submission submission);
  // Ends the request within one step; unknown ids are ignored.
  void abort(std::string request_id);
  // New submissions are refused from now on.
  void close();
  void wake();

  // Moves everything that arrived into the vectors (cleared first, capacity kept).
  void drain_into(std::vector<Submission>& submissions, std::vector<std::string>& aborts);
  // Blocks until something arrives, wake() or close().
  void wait();

 private:
  QueueOptions options_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Submission> submissions_;
  std::vector<std::string> aborts_;
  bool closed_ = false;
  bool woken_ = false;
};

}  // namespace quire
