#include "core/sched/waiting_queue.h"

#include <algorithm>
#include <limits>

#include "kernels/check.h"

namespace quire {

namespace {

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// A weight beyond this (a century) is as good as any: sums stay within 64 bits whatever priority a client sends.
constexpr double kMostWeight = 3e18;

}  // namespace

std::int64_t aged_rank(const Request& request, double priority_aging_s) {
  const double weight = static_cast<double>(request.priority) * priority_aging_s * 1e9;
  return nanoseconds(request.arrival) + static_cast<std::int64_t>(std::clamp(weight, -kMostWeight, kMostWeight));
}

WaitingQueue::Place WaitingQueue::place_of(Sequence& sequence) const {
  const Request& request = *sequence.request;
  std::int64_t rank = nanoseconds(request.arrival);
  if (options_.policy == SchedulerPolicy::kPriority) {
    rank = aged_rank(request, options_.priority_aging_s);
  } else if (options_.policy == SchedulerPolicy::kFair && sequence.has_started) {
    rank = std::numeric_limits<std::int64_t>::min();  // then by id
  }
  return {rank, sequence.id.value, &sequence};
}

WaitingQueue::Queue& WaitingQueue::queue_of(const Sequence& sequence) {
  if (options_.policy != SchedulerPolicy::kFair) return queues_[{}];
  const auto [found, added] = queues_.try_emplace(sequence.request->key_name);
  if (added) found->second.weight = weight_of(found->first);
  return found->second;
}

double WaitingQueue::weight_of(const std::string& key_name) const {
  const auto weight = options_.key_weights.find(key_name);
  return weight == options_.key_weights.end() ? 1.0 : weight->second;
}

void WaitingQueue::set_key_weights(std::map<std::string, double> weights) {
  options_.key_weights = std::move(weights);
  for (auto& [name, queue] : queues_)
    queue.weight = weight_of(name);
}

void WaitingQueue::add(Sequence& sequence) {
  queue_of(sequence).places.insert(place_of(sequence));
  ++num_waiting_;
}

void WaitingQueue::remove(Sequence& sequence) {
  const auto num_removed = queue_of(sequence).places.erase(place_of(sequence));
  QUIRE_CHECK(num_removed == 1, "a waiting sequence has one place");
  --num_waiting_;
}

std::span<WaitingQueue::Queue* const> WaitingQueue::by_counter() {
  order_.clear();
  for (auto& [name, queue] : queues_) {
    if (!queue.places.empty()) order_.push_back(&queue);
  }
  std::stable_sort(order_.begin(), order_.end(),
                   [](const Queue* a, const Queue* b) { return a->counter < b->counter; });
  return order_;
}

void WaitingQueue::charge(const Sequence& sequence, std::int64_t num_tokens) {
  if (options_.policy != SchedulerPolicy::kFair) return;
  Queue& queue = queue_of(sequence);
  queue.counter += static_cast<double>(num_tokens) / queue.weight;
}

// A key that was idle does not save up for later: it starts level with the least served of those that are live.
void WaitingQueue::began(const Sequence& sequence) {
  Queue& queue = queue_of(sequence);
  if (queue.num_live++ > 0) return;
  double floor = std::numeric_limits<double>::infinity();
  for (const auto& [name, other] : queues_) {
    if (other.num_live > 0 && &other != &queue) floor = std::min(floor, other.counter);
  }
  if (floor == std::numeric_limits<double>::infinity()) floor = last_counter_;
  queue.counter = std::max(queue.counter, floor);
}

void WaitingQueue::ended(const Sequence& sequence) {
  Queue& queue = queue_of(sequence);
  QUIRE_CHECK(queue.num_live > 0, "a request ends once");
  if (--queue.num_live == 0) last_counter_ = std::max(last_counter_, queue.counter);
}

}  // namespace quire
