// PullRunner: downloads requested by clients of the server, one after another on the thread `pulls`. PullJob: one of
// them, shared by all requests for the same model. Any thread. Invariants: a job without any PullLease stops, and keeps
// its bytes for the next pull; an ended job never changes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "server/hub/pull.h"
#include "server/models/work_thread.h"

namespace quire::hub {

class PullJob {
 public:
  struct State {
    std::uint64_t version = 0;  // grows with every change
    PullProgress progress;
    std::optional<Error> error;         // set if it failed
    std::optional<CachedModel> result;  // set if it succeeded

    bool ended() const { return error || result; }
  };

  explicit PullJob(ModelReference model) : model_(std::move(model)) {}

  const ModelReference& model() const { return model_; }
  State state() const;
  // Calls `call` once, when the state differs from that of `version`; immediately if it does already.
  void on_change(std::uint64_t version, std::function<void()> call);

 private:
  friend class PullLease;
  friend class PullRunner;
  void set(PullProgress progress);
  void end(Result<CachedModel> result);
  // Adopts a new state; requires the mutex.
  std::vector<std::function<void()>> changed();

  const ModelReference model_;
  std::stop_source stop_;
  std::atomic<int> num_leases_{0};
  mutable std::mutex mutex_;
  State state_;
  std::vector<std::function<void()>> waiting_;
};

// Keeps the download running while it exists.
class PullLease {
 public:
  explicit PullLease(std::shared_ptr<PullJob> job) : job_(std::move(job)) { ++job_->num_leases_; }
  ~PullLease() {
    if (--job_->num_leases_ == 0) job_->stop_.request_stop();
  }
  PullLease(const PullLease&) = delete;
  PullLease& operator=(const PullLease&) = delete;

  PullJob& job() const { return *job_; }

 private:
  const std::shared_ptr<PullJob> job_;
};

class PullRunner {
 public:
  PullRunner() : thread_("pulls", [] { return std::nullopt; }) {}
  ~PullRunner() { stop(); }
  PullRunner(const PullRunner&) = delete;
  PullRunner& operator=(const PullRunner&) = delete;

  // The model's download: the one under way, or a new one behind the others. Errors: 429 if too many wait.
  Result<std::shared_ptr<PullLease>> pull(const HubEnvironment& environment, const ModelReference& model,
                                          std::int64_t max_bytes);
  // Lets the job finish even after its last lease ends.
  void keep(std::shared_ptr<PullLease> lease);
  // The jobs that have not ended.
  std::vector<std::shared_ptr<PullJob>> jobs() const;
  // Ends running and waiting jobs with errors.
  void abandon();
  // Stops the downloads and waits for the thread.
  void stop();

 private:
  void run(const std::shared_ptr<PullJob>& job, const HubEnvironment& environment, std::int64_t max_bytes);
  // The cache's locks are released when this returns, so that a client with the answer can delete the model.
  static Result<CachedModel> download(PullJob& job, const HubEnvironment& environment, std::int64_t max_bytes);

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<PullJob>> jobs_;
  std::vector<std::shared_ptr<PullLease>> kept_;
  WorkThread thread_;  // destroyed first
};

}  // namespace quire::hub
