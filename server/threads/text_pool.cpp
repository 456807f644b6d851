#include "server/threads/text_pool.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace quire {

namespace {

// Idle clients of a lane that may stay in memory.
constexpr std::size_t kMostIdle = 256;
// Nice value of threads with long jobs: threads that compute and answer come first when cores are short.
constexpr int kLongNice = 5;

}  // namespace

bool TextSchedule::may_run(TextLane lane, const Client& client) const {
  return !client.waiting.empty() && (lane == TextLane::kQuick || client.num_running < most_long_);
}

bool TextSchedule::Earlier::operator()(const Clients::value_type* a, const Clients::value_type* b) const {
  return a->second.used != b->second.used ? a->second.used < b->second.used : a->first < b->first;
}

void TextSchedule::enlist(Lane& lane, Clients::value_type& client) {
  if (client.second.place) lane.candidates.insert(std::move(client.second.place));
}

void TextSchedule::withdraw(Lane& lane, Clients::value_type& client) {
  if (!client.second.place) client.second.place = lane.candidates.extract(&client);
}

void TextSchedule::add(TextLane lane, const std::string& client, Job job) {
  Lane& own = lanes_[index(lane)];
  const Lane& other = lanes_[1 - index(lane)];
  // A client or lane that was idle has no advance.
  if (own.num_waiting == 0) own.used = std::max(own.used, other.used);
  const auto [at, is_new] = own.clients.try_emplace(client);
  Client& entry = at->second;
  try {
    if (is_new) {
      Candidates one;
      one.insert(&*at);
      entry.place = one.extract(one.begin());
    }
    entry.waiting.push_back(std::move(job));
  } catch (...) {
    if (is_new) own.clients.erase(at);
    throw;
  }
  if (entry.waiting.size() == 1 && entry.num_running == 0) entry.used = std::max(entry.used, own.least);
  if (may_run(lane, entry)) enlist(own, *at);
  ++own.num_waiting;
}

std::optional<TextSchedule::Next> TextSchedule::take(bool quick_only) {
  const Lane& quick = lanes_[index(TextLane::kQuick)];
  const Lane& slow = lanes_[index(TextLane::kLong)];
  if (quick_only || slow.candidates.empty()) {
    if (quick.candidates.empty()) return std::nullopt;
    return take_from(TextLane::kQuick);
  }
  const bool quick_first = !quick.candidates.empty() && quick.used <= slow.used;
  return take_from(quick_first ? TextLane::kQuick : TextLane::kLong);
}

TextSchedule::Next TextSchedule::take_from(TextLane lane) {
  Lane& own = lanes_[index(lane)];
  Clients::value_type& first = **own.candidates.begin();
  Client& client = first.second;
  Next next{{}, lane, first.first};
  own.least = std::max(own.least, client.used);
  withdraw(own, first);
  next.job = std::move(client.waiting.front());
  client.waiting.pop_front();
  ++client.num_running;
  if (may_run(lane, client)) enlist(own, first);
  --own.num_waiting;
  return next;
}

void TextSchedule::charge(TextLane lane, std::string_view client, double seconds) {
  Lane& own = lanes_[index(lane)];
  own.used += seconds;
  own.seconds += seconds;
  const auto place = own.clients.find(client);
  Client& entry = place->second;
  withdraw(own, *place);
  entry.used += seconds;
  --entry.num_running;
  if (may_run(lane, entry)) enlist(own, *place);
  // A client that used more than its share is remembered until the others have caught up.
  if (own.clients.size() <= kMostIdle) return;
  std::erase_if(own.clients, [&](const auto& each) {
    return each.second.waiting.empty() && each.second.num_running == 0 && each.second.used <= own.least;
  });
}

TextPool::TextPool(std::size_t num_threads)
    : num_threads_(num_threads),
      num_quick_(num_threads / 2),
      workers_(num_threads),
      schedule_(std::max<std::size_t>(2, num_threads - num_quick_) - 1) {}

void TextPool::start() {
  for (std::size_t i = 0; i < num_threads_; ++i)
    threads_.emplace_back([this, i] { run(i); });
}

TextPool::Worker* TextPool::claim_idle(TextLane lane) {
  for (std::size_t i = lane == TextLane::kQuick ? 0 : num_quick_; i < workers_.size(); ++i) {
    if (std::exchange(workers_[i].is_idle, false)) return &workers_[i];
  }
  return nullptr;
}

void TextPool::post(TextLane lane, const std::string& client, TextSchedule::Job job) {
  Worker* idle = nullptr;
  {
    const std::lock_guard lock(mutex_);
    schedule_.add(lane, client, std::move(job));
    idle = claim_idle(lane);
  }
  if (idle != nullptr) idle->woken.notify_one();
}

void TextPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (Worker& worker : workers_)
    worker.woken.notify_one();
}

void TextPool::join() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

TextPool::Stats TextPool::stats() const {
  Stats stats;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < kNumTextLanes; ++i) {
    stats.num_waiting[i] = schedule_.num_waiting(static_cast<TextLane>(i));
    stats.seconds[i] = schedule_.seconds_used(static_cast<TextLane>(i));
  }
  return stats;
}

void TextPool::run(std::size_t number) {
  pthread_setname_np(pthread_self(), ("text-" + std::to_string(number)).c_str());
  const bool quick_only = number < num_quick_;
  if (!quick_only && num_threads_ > 1) ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLongNice);
  Worker& self = workers_[number];
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    auto next = schedule_.take(quick_only);
    if (!next) {
      self.is_idle = true;
      self.woken.wait(lock, [&] { return stopping_ || !self.is_idle; });
      continue;
    }
    lock.unlock();
    const auto began = std::chrono::steady_clock::now();
    next->job();
    next->job = nullptr;
    const std::chrono::duration<double> cost = std::chrono::steady_clock::now() - began;
    lock.lock();
    schedule_.charge(next->lane, next->client, cost.count());
    // A long job may have waited for this job's end, and this thread takes a quick one next.
    Worker* const idle = schedule_.num_waiting(TextLane::kLong) > 0 ? claim_idle(TextLane::kLong) : nullptr;
    if (idle != nullptr) idle->woken.notify_one();
  }
}

}  // namespace quire
