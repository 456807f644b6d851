#include "core/engine/request_queue.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace quire {

namespace {

constexpr std::chrono::seconds kMaxRetryAfter{600};
constexpr const char* kOverloaded = "The server is overloaded. Please retry later.";

Error refused(ErrorKind kind, std::string message, std::string code, std::chrono::seconds retry_after) {
  return {kind, std::move(message), std::move(code), {}, retry_after};
}

std::int64_t num_prompt_tokens(const Submission& submission) {
  return static_cast<std::int64_t>(submission.request->prompt.size());
}

// The account that the request counts against. A key's batches have a second account with bounds of the same size.
std::string account_of(const Request& request) {
  return request.is_background ? "batches of\n" + request.key_name : request.key_name;
}

}  // namespace

Error server_draining(std::string message) {
  return {ErrorKind::kUnavailable, std::move(message), "server_draining", {}, std::chrono::seconds(5)};
}

QueueTicket::QueueTicket(QueueTicket&& other) noexcept {
  *this = std::move(other);
}

QueueTicket& QueueTicket::operator=(QueueTicket&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  queue_ = std::exchange(other.queue_, nullptr);
  key_name_ = std::move(other.key_name_);
  num_requests_ = std::exchange(other.num_requests_, 0);
  num_tokens_ = std::exchange(other.num_tokens_, 0);
  num_bytes_ = std::exchange(other.num_bytes_, 0);
  return *this;
}

void QueueTicket::give_back() {
  if (queue_ != nullptr) std::exchange(queue_, nullptr)->remove(*this);
}

Result<QueueTicket> RequestQueue::reserve(const std::string& key_name, std::int64_t body_bytes) {
  const std::lock_guard lock(mutex_);
  if (auto error = refusal(key_name, {.num_requests = 1, .num_bytes = body_bytes}, false)) {
    return tl::make_unexpected(*std::move(error));
  }
  QueueTicket ticket;
  ticket.key_name_ = key_name;
  add(key_name, {.num_requests = 1, .num_bytes = body_bytes});
  ticket.queue_ = this;
  ticket.num_requests_ = 1;
  ticket.num_bytes_ = body_bytes;
  return ticket;
}

Result<void> RequestQueue::submit(Submission submission) {
  QueueTicket refused_ticket;  // released after the unlock
  {
    const std::lock_guard lock(mutex_);
    QueueTicket& ticket = submission.ticket;
    if (ticket.queue_ == nullptr) ticket.key_name_ = account_of(*submission.request);
    const Usage added{.num_requests = submission.request->num_choices - ticket.num_requests_,
                      .num_tokens = num_prompt_tokens(submission)};
    if (auto error = refusal(ticket.key_name_, added, submission.continues_list)) {
      refused_ticket = std::move(ticket);
      return tl::make_unexpected(*std::move(error));
    }
    add(ticket.key_name_, added);
    ticket.queue_ = this;
    ticket.num_requests_ += added.num_requests;
    ticket.num_tokens_ = added.num_tokens;
    submissions_.push_back(std::move(submission));
    interrupt_.store(true, std::memory_order_relaxed);
  }
  arrived_.notify_one();
  return {};
}

void RequestQueue::abort(std::string request_id, std::optional<std::int32_t> choice) {
  {
    const std::lock_guard lock(mutex_);
    aborts_.push_back({std::move(request_id), choice});
    interrupt_.store(true, std::memory_order_relaxed);
  }
  arrived_.notify_one();
}

RequestQueue::RequestQueue(const QueueOptions& options)
    : options_(options),
      shutting_down_(std::make_shared<const Error>(server_draining("The server is shutting down."))) {}

void RequestQueue::close() {
  close(shutting_down_);
}

void RequestQueue::close(SharedError reason) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ == nullptr) closed_ = std::move(reason);
    woken_ = true;
  }
  arrived_.notify_one();
}

void RequestQueue::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  arrived_.notify_one();
}

QueueOptions RequestQueue::options() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

void RequestQueue::reconfigure(const QueueOptions& options, std::map<std::string, double> key_weights) {
  const std::lock_guard lock(mutex_);
  options_ = options;
  key_weights_ = std::move(key_weights);
}

std::optional<std::map<std::string, double>> RequestQueue::take_key_weights() {
  const std::lock_guard lock(mutex_);
  return std::exchange(key_weights_, std::nullopt);
}

void RequestQueue::drain_into(std::vector<Submission>& submissions, std::vector<Abort>& aborts) {
  submissions.clear();
  aborts.clear();
  const std::lock_guard lock(mutex_);
  submissions.swap(submissions_);
  aborts.swap(aborts_);
  interrupt_.store(false, std::memory_order_relaxed);
}

void RequestQueue::wait(std::optional<Clock::time_point> until) {
  std::unique_lock lock(mutex_);
  const auto something = [this] { return woken_ || !submissions_.empty() || !aborts_.empty(); };
  if (until) {
    arrived_.wait_until(lock, *until, something);
  } else {
    arrived_.wait(lock, something);
  }
  woken_ = false;
}

void RequestQueue::note_progress(ServiceRate rate) {
  const std::lock_guard lock(mutex_);
  rate_ = rate;
}

std::optional<Error> RequestQueue::refusal(const std::string& key_name, Usage added, bool continues_list) const {
  if (closed_ != nullptr) return *closed_;
  const auto found = per_key_.find(key_name);
  const Usage of_key = found == per_key_.end() ? Usage{} : found->second;
  const Usage key_bounds{options_.max_queued_requests_per_key, options_.max_queued_tokens_per_key,
                         options_.max_queued_bytes_per_key};
  Usage bounds{options_.max_queued_requests, options_.max_queued_tokens, options_.max_queued_bytes};
  for (const Usage& each : {key_bounds, bounds}) {
    if (larger_by_itself(added, each)) {
      return invalid("The request is larger than what may wait at all.", {}, "request_too_large").value();
    }
  }
  if (exceeds(of_key, added, key_bounds)) {
    return refused(ErrorKind::kRateLimited, "Too much is waiting under this API key. Please retry later.",
                   "rate_limit_exceeded", retry_after(of_key));
  }
  if (continues_list) {
    bounds.num_requests = std::max<std::int64_t>(1, bounds.num_requests / 2);
    bounds.num_tokens = std::max<std::int64_t>(1, bounds.num_tokens / 2);
  }
  if (exceeds(total_, added, bounds)) {
    return refused(ErrorKind::kUnavailable, kOverloaded, "server_overloaded", retry_after(total_));
  }
  return std::nullopt;
}

bool RequestQueue::larger_by_itself(const Usage& added, const Usage& bounds) {
  return (bounds.num_requests > 0 && added.num_requests > bounds.num_requests) ||
         (bounds.num_tokens > 0 && added.num_tokens > bounds.num_tokens) ||
         (bounds.num_bytes > 0 && added.num_bytes > bounds.num_bytes);
}

// A request whose tokens are not counted yet adds at least one.
bool RequestQueue::exceeds(const Usage& used, const Usage& added, const Usage& bounds) {
  const auto one_exceeds = [](std::int64_t has, std::int64_t more, std::int64_t bound) {
    return bound > 0 && more > 0 && has + more > bound;
  };
  return one_exceeds(used.num_requests, added.num_requests, bounds.num_requests) ||
         one_exceeds(used.num_tokens, std::max<std::int64_t>(added.num_tokens, 1), bounds.num_tokens) ||
         one_exceeds(used.num_bytes, added.num_bytes, bounds.num_bytes);
}

Error RequestQueue::overloaded() const {
  const std::lock_guard lock(mutex_);
  return refused(ErrorKind::kUnavailable, kOverloaded, "server_overloaded", retry_after(total_));
}

void RequestQueue::add(const std::string& key_name, Usage added) {
  for (Usage* usage : {&total_, &per_key_[key_name]}) {
    usage->num_requests += added.num_requests;
    usage->num_tokens += added.num_tokens;
    usage->num_bytes += added.num_bytes;
  }
}

void RequestQueue::remove(const QueueTicket& ticket) {
  const std::lock_guard lock(mutex_);
  const auto key = per_key_.find(ticket.key_name_);
  for (Usage* usage : {&total_, &key->second}) {
    usage->num_requests -= ticket.num_requests_;
    usage->num_tokens -= ticket.num_tokens_;
    usage->num_bytes -= ticket.num_bytes_;
  }
  if (key->second.num_requests == 0) per_key_.erase(key);
}

// Time until the queued requests have started, at the recent rate at which requests and prompts were started.
std::chrono::seconds RequestQueue::retry_after(const Usage& queued) const {
  const auto needed = [](std::int64_t amount, double rate) {
    return rate > 0.0 ? static_cast<double>(amount) / rate : 0.0;
  };
  const double seconds = std::ceil(std::max(needed(queued.num_requests, rate_.requests_per_second),
                                            needed(queued.num_tokens, rate_.prompt_tokens_per_second)));
  const double bound = static_cast<double>(kMaxRetryAfter.count());
  return std::chrono::seconds(static_cast<std::int64_t>(std::clamp(seconds, 1.0, bound)));
}

}  // namespace quire
