#include "server/hub/pull_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/base/log.h"

namespace quire::hub {

namespace {

constexpr std::size_t kMostJobs = 16;
constexpr std::chrono::milliseconds kReportEvery{200};

bool is_news(const PullProgress& a, const PullProgress& b) {
  return a.phase != b.phase || a.file_number != b.file_number;
}

tl::unexpected<Error> server_ends() {
  return failure(ErrorKind::kUnavailable, "the server ends", "pull_stopped");
}

}  // namespace

PullJob::State PullJob::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void PullJob::on_change(std::uint64_t version, std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (state_.version == version && !state_.ended()) return waiting_.push_back(std::move(call));
  }
  call();
}

std::vector<std::function<void()>> PullJob::changed() {
  ++state_.version;
  return std::exchange(waiting_, {});
}

void PullJob::set(PullProgress progress) {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    state_.progress = std::move(progress);
    calls = changed();
  }
  for (const auto& call : calls)
    call();
}

void PullJob::end(Result<CachedModel> result) {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    if (result) {
      state_.result = *std::move(result);
    } else {
      state_.error = result.error();
    }
    calls = changed();
  }
  for (const auto& call : calls)
    call();
}

Result<std::shared_ptr<PullLease>> PullRunner::pull(const HubEnvironment& environment, const ModelReference& model,
                                                    std::int64_t max_bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& job : jobs_) {
    if (job->model().text() != model.text() || job->stop_.stop_requested()) continue;
    auto lease = std::make_shared<PullLease>(job);
    if (!job->stop_.stop_requested()) return lease;  // its last lease may have ended just before
  }
  if (jobs_.size() == kMostJobs) {
    return tl::make_unexpected(Error{ErrorKind::kRateLimited, fmt::format("{} downloads wait already", kMostJobs),
                                     "too_many_pulls", "", std::chrono::seconds(60)});
  }
  const auto job = std::make_shared<PullJob>(model);
  jobs_.push_back(job);
  thread_.post([this, job, environment, max_bytes] { run(job, environment, max_bytes); });
  return std::make_shared<PullLease>(job);
}

Result<CachedModel> PullRunner::download(PullJob& job, const HubEnvironment& environment, std::int64_t max_bytes) {
  Pull pull(environment, job.model(), max_bytes, job.stop_.get_token());
  auto reported_at = std::chrono::steady_clock::now();
  PullProgress reported;
  Result<bool> done = false;
  while (done && !*done) {
    done = pull.step();
    if (!done && job.stop_.stop_requested()) done = pull.step();  // the next step() returns the error of a stop
    const auto now = std::chrono::steady_clock::now();
    const bool grew = reported.num_bytes != pull.progress().num_bytes && now - reported_at >= kReportEvery;
    if (!grew && !is_news(reported, pull.progress())) continue;
    reported_at = now;
    reported = pull.progress();
    job.set(reported);
  }
  if (!done) return tl::make_unexpected(done.error());
  return pull.result();
}

void PullRunner::run(const std::shared_ptr<PullJob>& job, const HubEnvironment& environment, std::int64_t max_bytes) {
  log::info("pull: {} begins", job->model().text());
  Result<CachedModel> result = download(*job, environment, max_bytes);
  {
    const std::lock_guard lock(mutex_);
    std::erase(jobs_, job);
  }
  if (result) {
    log::info("pull: {} is in {}", job->model().text(), result->path.string());
  } else {
    log::warn("pull: {}", result.error().message);
  }
  job->end(std::move(result));
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&job](const auto& lease) { return &lease->job() == job.get(); });
}

void PullRunner::keep(std::shared_ptr<PullLease> lease) {
  const std::lock_guard lock(mutex_);
  if (!lease->job().state().ended()) kept_.push_back(std::move(lease));
}

std::vector<std::shared_ptr<PullJob>> PullRunner::jobs() const {
  const std::lock_guard lock(mutex_);
  return jobs_;
}

void PullRunner::abandon() {
  for (const auto& job : jobs())
    job->stop_.request_stop();
}

void PullRunner::stop() {
  abandon();
  thread_.stop();
  // The callbacks of jobs that never began run on the server's loops, which end after this.
  std::vector<std::shared_ptr<PullJob>> left;
  std::vector<std::shared_ptr<PullLease>> kept;
  {
    const std::lock_guard lock(mutex_);
    left.swap(jobs_);
    kept.swap(kept_);
  }
  for (const auto& job : left)
    job->end(server_ends());
}

}  // namespace quire::hub
