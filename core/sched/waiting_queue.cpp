#include "core/sched/waiting_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// A weight beyond this (a century) is as good as any: sums stay within 64 bits whatever priority a client sends.
constexpr double kMostWeight = 3e18;
constexpr std::size_t kNodes = 2;  // of a sequence that waits: by rank and by length

}  // namespace

std::int64_t aged_rank(const Request& request, double priority_aging_s) {
  const double weight = static_cast<double>(request.priority) * priority_aging_s * 1e9;
  return nanoseconds(request.arrival) + static_cast<std::int64_t>(std::clamp(weight, -kMostWeight, kMostWeight));
}

bool ByRank::operator()(const QueuedSequence& a, const QueuedSequence& b) const {
  return std::tie(a.rank, a.id) < std::tie(b.rank, b.id);
}

bool ByLength::operator()(const QueuedSequence& a, const QueuedSequence& b) const {
  return std::tie(a.importance, a.length, a.rank, a.id) < std::tie(b.importance, b.length, b.rank, b.id);
}

QueuedSequence WaitingQueue::place_of(Sequence& sequence) const {
  const Request& request = *sequence.request;
  std::int64_t rank = nanoseconds(request.arrival);
  std::int64_t importance = 0;
  if (request.is_background) {
    importance = kBackgroundLevel;  // by arrival, whether or not it has started
  } else if (options_.policy == SchedulerPolicy::kPriority) {
    rank = aged_rank(request, options_.priority_aging_s);
    importance = request.priority;
  } else if (options_.policy == SchedulerPolicy::kFair && sequence.has_started) {
    rank = std::numeric_limits<std::int64_t>::min();  // then by id
  }
  return {rank, importance, sequence.waiting.length, sequence.id.value, &sequence};
}

KeyQueue::Lane& WaitingQueue::lane_of(const Sequence& sequence) {
  const std::size_t lane = sequence.continues_list ? 2 : sequence.waiting.is_bounded ? 1 : 0;
  return sequence.waiting.queue->lanes[lane];
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

WaitingQueue::Node WaitingQueue::node_of(const QueuedSequence& place) {
  Node node = std::move(spare_.back());
  spare_.pop_back();
  node.value() = place;
  return node;
}

void WaitingQueue::enter(Sequence& sequence) {
  const QueuedSequence place = place_of(sequence);
  KeyQueue::Lane& lane = lane_of(sequence);
  lane.by_rank.insert(node_of(place));
  lane.by_length.insert(node_of(place));
  KeyQueue& queue = *sequence.waiting.queue;
  if (queue.num_in_order++ > 0) return;
  queue.place = not_empty_.size();
  not_empty_.push_back(&queue);
}

void WaitingQueue::leave(Sequence& sequence) {
  const QueuedSequence place = place_of(sequence);
  KeyQueue::Lane& lane = lane_of(sequence);
  Node ranked = lane.by_rank.extract(place);
  Node measured = lane.by_length.extract(place);
  QUIRE_CHECK(!ranked.empty() && !measured.empty(), "a waiting sequence has one place");
  spare_.push_back(std::move(ranked));
  spare_.push_back(std::move(measured));
  KeyQueue& queue = *sequence.waiting.queue;
  if (--queue.num_in_order > 0) return;
  not_empty_.back()->place = queue.place;
  not_empty_[queue.place] = not_empty_.back();
  not_empty_.pop_back();
}

void WaitingQueue::add(Sequence& sequence) {
  WaitingState& state = sequence.waiting;
  state.length = sequence.num_tokens();
  state.is_bounded = sequence.has_bound();
  enter(sequence);
  ++num_waiting_;
}

void WaitingQueue::remove(Sequence& sequence) {
  WaitingState& state = sequence.waiting;
  --num_waiting_;
  if (state.behind == nullptr) {
    leave(sequence);
    return;
  }
  --num_parked_;
  if (state.next != nullptr) state.next->waiting.previous = state.previous;
  (state.previous != nullptr ? state.previous->waiting.next : state.behind->waiting.first_parked) = state.next;
  state.behind = state.next = state.previous = nullptr;
}

void WaitingQueue::park(Sequence& sequence, Sequence& behind, std::int64_t until) {
  leave(sequence);
  ++num_parked_;
  WaitingState& state = sequence.waiting;
  WaitingState& other = behind.waiting;
  other.first_wakes_at = other.first_parked == nullptr ? until : std::min(other.first_wakes_at, until);
  state.behind = &behind;
  // The most urgent one comes first: it says how urgent `behind` is.
  Sequence* const first = other.first_parked;
  const bool is_first = first == nullptr || ByLength()(place_of(sequence), place_of(*first));
  state.previous = is_first ? nullptr : first;
  state.next = is_first ? first : first->waiting.next;
  if (state.next != nullptr) state.next->waiting.previous = &sequence;
  (is_first ? other.first_parked : first->waiting.next) = &sequence;
}

void WaitingQueue::wake(Sequence& behind) {
  for (Sequence* next = std::exchange(behind.waiting.first_parked, nullptr); next != nullptr;) {
    Sequence& sequence = *next;
    next = sequence.waiting.next;
    sequence.waiting.behind = sequence.waiting.next = sequence.waiting.previous = nullptr;
    --num_parked_;
    enter(sequence);
  }
}

void WaitingQueue::wake_computed(Sequence& behind) {
  if (behind.waiting.first_parked != nullptr && behind.num_computed >= behind.waiting.first_wakes_at) wake(behind);
}

// Among equals the key that came first.
std::span<KeyQueue* const> WaitingQueue::first_by_counter(std::size_t most) {
  first_.resize(std::min(most, not_empty_.size()));
  std::partial_sort_copy(not_empty_.begin(), not_empty_.end(), first_.begin(), first_.end(),
                         [](const KeyQueue* a, const KeyQueue* b) {
                           if (a->is_background != b->is_background) return b->is_background;
                           return a->counter != b->counter ? a->counter < b->counter : a->number < b->number;
                         });
  return first_;
}

void WaitingQueue::collect(std::size_t window, std::size_t most, std::vector<Sequence*>& found) {
  const auto take = [&](const auto& places) {
    std::size_t left = window;
    for (auto place = places.begin(); place != places.end() && left > 0 && found.size() < most; ++place, --left) {
      if (std::find(found.begin(), found.end(), place->sequence) == found.end()) found.push_back(place->sequence);
    }
  };
  for (KeyQueue* queue : first_by_counter(most)) {  // each has at least one
    for (const KeyQueue::Lane& lane : queue->lanes) {
      take(lane.by_rank);
      take(lane.by_length);
    }
    if (found.size() >= most) return;
  }
}

bool WaitingQueue::comes_before(Sequence& a, Sequence& b) const {
  if (a.request->is_background != b.request->is_background) return b.request->is_background;
  const double counter_a = counter(a);
  const double counter_b = counter(b);
  return counter_a != counter_b ? counter_a < counter_b : ByRank()(place_of(a), place_of(b));
}

void WaitingQueue::charge(const Sequence& sequence, std::int64_t num_tokens) {
  if (options_.policy != SchedulerPolicy::kFair || sequence.request->is_background) return;
  KeyQueue& queue = *sequence.waiting.queue;
  queue.counter += static_cast<double>(num_tokens) / queue.weight;
}

double WaitingQueue::counter(const Sequence& sequence) const {
  return options_.policy == SchedulerPolicy::kFair ? sequence.waiting.queue->counter : 0.0;
}

// For all sequences that have begun: each of them may wait again.
void WaitingQueue::reserve(std::int64_t num_begun) {
  const std::size_t num_nodes = kNodes * static_cast<std::size_t>(num_begun);
  if (spare_.capacity() < num_nodes) spare_.reserve(2 * num_nodes);
  for (auto* queues : {&not_empty_, &first_}) {
    if (queues->capacity() <= queues_.size()) queues->reserve(2 * queues_.size() + 1);
  }
  std::array<Node, kNodes> nodes;
  for (Node& node : nodes) {
    std::set<QueuedSequence, ByRank> one{{}};
    node = one.extract(one.begin());
  }
  std::move(nodes.begin(), nodes.end(), std::back_inserter(spare_));
}

// A key that was idle does not save up for later: it starts level with the least served of those that are live.
void WaitingQueue::began(Sequence& sequence) {
  if (sequence.request->is_background) {
    reserve(num_begun_ + 1);
    ++num_begun_;
    ++background_.num_live;
    sequence.waiting.queue = &background_;
    return;
  }
  const bool by_key = options_.policy == SchedulerPolicy::kFair;
  const auto [found, added] = queues_.try_emplace(by_key ? sequence.request->key_name : std::string());
  KeyQueue& queue = found->second;
  if (added) {
    queue.weight = weight_of(found->first);
    queue.number = static_cast<std::int64_t>(queues_.size());
  }
  reserve(num_begun_ + 1);
  ++num_begun_;
  sequence.waiting.queue = &queue;
  if (queue.num_live++ > 0) return;
  double floor = std::numeric_limits<double>::infinity();
  for (const auto& [name, other] : queues_) {
    if (other.num_live > 0 && &other != &queue) floor = std::min(floor, other.counter);
  }
  if (floor == std::numeric_limits<double>::infinity()) floor = last_counter_;
  queue.counter = std::max(queue.counter, floor);
}

void WaitingQueue::ended(const Sequence& sequence) {
  --num_begun_;
  spare_.resize(spare_.size() - kNodes);
  KeyQueue& queue = *sequence.waiting.queue;
  QUIRE_CHECK(queue.num_live > 0, "a request ends once");
  if (--queue.num_live == 0 && !queue.is_background) last_counter_ = std::max(last_counter_, queue.counter);
}

}  // namespace quire
