#include "server/threads/media_pool.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace quire {

namespace {

// Threads that compute and answer go first where cores are short.
constexpr int kMediaNice = 5;

tl::unexpected<Error> full(ErrorKind kind, const char* code, const char* message) {
  return tl::make_unexpected(Error{kind, message, code, "", std::chrono::seconds(2)});
}

}  // namespace

MediaPool::MediaPool(const MediaOptions& options)
    : options_(options), schedule_(static_cast<std::size_t>(std::max(2, options.threads)) - 1) {}

void MediaPool::start() {
  for (int i = 0; i < options_.threads; ++i)
    threads_.emplace_back([this, i] { run(i); });
}

Result<void> MediaPool::post(const std::string& client, std::vector<TextSchedule::Job> jobs) {
  {
    const std::lock_guard lock(mutex_);
    const std::int64_t num_added = std::ssize(jobs);
    std::int64_t& of_client = num_waiting_[client];
    const auto num_all = static_cast<std::int64_t>(schedule_.num_waiting(TextLane::kLong));
    const bool has_room = num_all + num_added <= options_.max_waiting;
    const bool may_have_it = of_client + num_added <= options_.max_waiting_per_key;
    if (!has_room || !may_have_it) {
      if (of_client == 0) num_waiting_.erase(client);
      if (has_room)
        return full(ErrorKind::kRateLimited, "rate_limit_exceeded",
                    "Too many images of this client wait to be decoded");
      return full(ErrorKind::kUnavailable, "server_overloaded", "Too many images wait to be decoded");
    }
    // Counted one by one: if memory runs out, those before it still run.
    for (TextSchedule::Job& job : jobs) {
      schedule_.add(TextLane::kLong, client, std::move(job));
      ++of_client;
    }
  }
  changed_.notify_all();
  return {};
}

void MediaPool::stop() {
  cut_.request_stop();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void MediaPool::join() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

std::size_t MediaPool::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return schedule_.num_waiting(TextLane::kLong);
}

void MediaPool::run(int number) {
  pthread_setname_np(pthread_self(), ("media-" + std::to_string(number)).c_str());
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kMediaNice);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    auto next = schedule_.take(false);
    if (!next) {
      changed_.wait(lock);
      continue;
    }
    if (const auto waiting = num_waiting_.find(next->client); --waiting->second == 0) num_waiting_.erase(waiting);
    lock.unlock();
    const auto began = std::chrono::steady_clock::now();
    next->job();
    next->job = nullptr;
    const std::chrono::duration<double> cost = std::chrono::steady_clock::now() - began;
    lock.lock();
    schedule_.charge(next->lane, next->client, cost.count());
    if (schedule_.num_waiting(TextLane::kLong) > 0) changed_.notify_one();
  }
}

}  // namespace quire
