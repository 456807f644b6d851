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

// The largest weight (a century): sums stay within 64 bits for every priority that a client may send.
constexpr double kMostWeight = 3e18;
constexpr std::size_t kNodes = 2;  // per waiting sequence: by rank and by length

Lane kind_of(const Sequence& sequence) {
  if (sequence.request->is_background) return sequence.has_bound() ? Lane::kBackgroundBounded : Lane::kBackground;
  if (sequence.continues_list) return Lane::kLists;
  if (sequence.is_choice) return Lane::kChoices;
  return sequence.has_bound() ? Lane::kBounded : Lane::kRequests;
}

Lane without_room(Lane kind) {
  return static_cast<Lane>(static_cast<unsigned>(kind) + kNumStartingKinds);
}

bool is_without_room(Lane lane) {
  return lane >= Lane::kFirstWithoutRoom && lane < Lane::kRestoring;
}

Lane lane_of(const Sequence& sequence) {
  const bool is_background = sequence.request->is_background;
  if (sequence.table.is_restoring || sequence.awaits_media)
    return is_background ? Lane::kBackgroundRestoring : Lane::kRestoring;
  return sequence.waiting.lacks_room ? without_room(kind_of(sequence)) : kind_of(sequence);
}

// Appends the sequence if it is not among those from `first` on.
void add_once(Sequence& sequence, std::size_t first, std::vector<Sequence*>& found) {
  const auto begin = found.begin() + static_cast<std::ptrdiff_t>(first);
  if (std::find(begin, found.end(), &sequence) == found.end()) found.push_back(&sequence);
}

bool is_unready(const Sequence& sequence) {
  return sequence.waiting.lane >= Lane::kRestoring;
}

KeyQueue::Orders& orders_of(const Sequence& sequence) {
  return sequence.waiting.queue->lanes[static_cast<std::size_t>(sequence.waiting.lane)];
}

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
  if (request.is_background) {
    // by arrival, whether or not it has started
  } else if (options_.policy == SchedulerPolicy::kPriority) {
    rank = aged_rank(request, options_.priority_aging_s);
  } else if (options_.policy == SchedulerPolicy::kFair && sequence.has_started) {
    rank = std::numeric_limits<std::int64_t>::min();  // then by id
  }
  return {rank, class_of(request), sequence.waiting.length, sequence.id.value, &sequence};
}

std::int64_t WaitingQueue::class_of(const Request& request) const {
  if (request.is_background) return kBackgroundLevel;
  return options_.policy == SchedulerPolicy::kPriority ? request.priority : 0;
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
  sequence.waiting.lane = lane_of(sequence);
  if (is_unready(sequence)) ++num_unready_;
  KeyQueue::Orders& orders = orders_of(sequence);
  if (orders.by_rank.empty()) {
    std::vector<KeyQueue*>& queues = queues_of(sequence.waiting.lane);
    orders.place = queues.size();
    queues.push_back(sequence.waiting.queue);
  }
  orders.by_rank.insert(node_of(place));
  orders.by_length.insert(node_of(place));
}

void WaitingQueue::leave(Sequence& sequence) {
  const QueuedSequence place = place_of(sequence);
  KeyQueue::Orders& orders = orders_of(sequence);
  Node ranked = orders.by_rank.extract(place);
  Node measured = orders.by_length.extract(place);
  QUIRE_CHECK(!ranked.empty() && !measured.empty(), "a waiting sequence has one place");
  if (is_unready(sequence)) --num_unready_;
  spare_.push_back(std::move(ranked));
  spare_.push_back(std::move(measured));
  if (!orders.by_rank.empty()) return;
  const Lane lane = sequence.waiting.lane;
  std::vector<KeyQueue*>& queues = queues_of(lane);
  queues.back()->lanes[static_cast<std::size_t>(lane)].place = orders.place;
  queues[orders.place] = queues.back();
  queues.pop_back();
}

bool WaitingQueue::changes_lane(Sequence& sequence) {
  if (lane_of(sequence) == sequence.waiting.lane) return false;
  leave(sequence);
  enter(sequence);
  return true;
}

void WaitingQueue::add(Sequence& sequence) {
  sequence.waiting.length = sequence.num_tokens();
  sequence.waiting.lacks_room = false;
  enter(sequence);
  ++num_waiting_;
  ++num_changes_;
}

void WaitingQueue::remove(Sequence& sequence) {
  WaitingState& state = sequence.waiting;
  --num_waiting_;
  if (state.behind == nullptr) {
    leave(sequence);
    return;
  }
  if (state.next != nullptr) state.next->waiting.previous = state.previous;
  (state.previous != nullptr ? state.previous->waiting.next : state.behind->waiting.first_parked) = state.next;
  state.behind = state.next = state.previous = nullptr;
}

void WaitingQueue::park(Sequence& sequence, Sequence& behind, std::int64_t until) {
  leave(sequence);
  WaitingState& state = sequence.waiting;
  state.lacks_room = false;
  WaitingState& other = behind.waiting;
  other.first_wakes_at = other.first_parked == nullptr ? until : std::min(other.first_wakes_at, until);
  state.behind = &behind;
  // Keeps the most urgent one first, whose urgency `behind` takes over.
  Sequence* const first = other.first_parked;
  const bool is_first = first == nullptr || ByLength()(place_of(sequence), place_of(*first));
  state.previous = is_first ? nullptr : first;
  state.next = is_first ? first : first->waiting.next;
  if (state.next != nullptr) state.next->waiting.previous = &sequence;
  (is_first ? other.first_parked : first->waiting.next) = &sequence;
}

void WaitingQueue::wake(Sequence& behind) {
  ++num_changes_;
  for (Sequence* next = std::exchange(behind.waiting.first_parked, nullptr); next != nullptr;) {
    Sequence& sequence = *next;
    next = sequence.waiting.next;
    sequence.waiting.behind = sequence.waiting.next = sequence.waiting.previous = nullptr;
    enter(sequence);
  }
}

void WaitingQueue::wake_computed(Sequence& behind) {
  if (behind.waiting.first_parked != nullptr && behind.num_computed >= behind.waiting.first_wakes_at) wake(behind);
}

bool WaitingQueue::set_aside(Sequence& sequence) {
  sequence.waiting.lacks_room = true;
  return changes_lane(sequence);
}

std::int64_t WaitingQueue::turns_of_all() const {
  return num_waiting_ / static_cast<std::int64_t>(kMostInTurn) + std::ssize(queues_) + 1;
}

// Among equals the key that came first.
std::span<KeyQueue* const> WaitingQueue::first_by_counter(Lane lane, std::size_t most) {
  const std::vector<KeyQueue*>& queues = queues_of(lane);
  first_.resize(std::min(most, queues.size()));
  std::partial_sort_copy(queues.begin(), queues.end(), first_.begin(), first_.end(),
                         [](const KeyQueue* a, const KeyQueue* b) {
                           return a->counter != b->counter ? a->counter < b->counter : a->number < b->number;
                         });
  return first_;
}

void WaitingQueue::collect(Lanes lanes, std::size_t window, std::size_t most, std::vector<Sequence*>& found) {
  for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
    if ((lanes & only(static_cast<Lane>(lane))) == 0) continue;
    const std::size_t first = found.size();
    collect_lane(static_cast<Lane>(lane), window, most, found);
    if (is_without_room(static_cast<Lane>(lane))) collect_turn(static_cast<Lane>(lane), first, found);
  }
}

// Collects sequences of one key in a turn, so that every key has its turn. A turn ends at the latest with the key's
// sequences.
void WaitingQueue::collect_turn(Lane lane, std::size_t first, std::vector<Sequence*>& found) {
  LaneTurn& state = turns_[static_cast<unsigned>(lane) - kNumStartingKinds];
  if (std::exchange(state.turn, turn_) != turn_) state.begin = state.end;
  const std::vector<KeyQueue*>& queues = queues_of(lane);
  const auto comes_first = [&](const KeyQueue* a, const KeyQueue* b) {  // keys before the turn's begin come last
    return std::pair(a->number < state.begin.number, a->number) < std::pair(b->number < state.begin.number, b->number);
  };
  const auto queue = std::min_element(queues.begin(), queues.end(), comes_first);
  if (queue == queues.end()) return;
  const std::int64_t number = (*queue)->number;
  const auto& places = (*queue)->lanes[static_cast<std::size_t>(lane)].by_rank;
  auto place = number == state.begin.number ? places.upper_bound(state.begin.last) : places.begin();
  std::size_t left = kMostInTurn;
  for (; place != places.end() && left > 0; --left) {
    state.end = {number, *place};
    Sequence& sequence = *(place++)->sequence;
    if (!changes_lane(sequence)) add_once(sequence, first, found);
  }
  if (place == places.end()) state.end = {.number = number + 1};
}

// A sequence whose restore has begun moves to the restoring lane here, once, at the price of adding it.
void WaitingQueue::collect_lane(Lane lane, std::size_t window, std::size_t most, std::vector<Sequence*>& found) {
  const std::size_t end = found.size() + most;
  for (KeyQueue* queue : first_by_counter(lane, most)) {
    const std::size_t first = found.size();
    const auto take = [&](const auto& places) {
      std::size_t left = window;
      for (auto place = places.begin(); place != places.end() && left > 0 && found.size() < end;) {
        Sequence& sequence = *(place++)->sequence;
        if (changes_lane(sequence)) continue;
        --left;
        add_once(sequence, first, found);
      }
    };
    const KeyQueue::Orders& orders = queue->lanes[static_cast<std::size_t>(lane)];
    take(orders.by_rank);
    take(orders.by_length);
    if (found.size() == end) return;
  }
}

void WaitingQueue::leave_restoring_lanes() {
  ++num_changes_;
  for (const Lane lane : {Lane::kRestoring, Lane::kBackgroundRestoring}) {
    std::vector<KeyQueue*>& queues = queues_of(lane);
    for (std::size_t i = queues.size(); i-- > 0;) {  // the last one takes the place of one that becomes empty
      const auto& places = queues[i]->lanes[static_cast<std::size_t>(lane)].by_rank;
      for (auto place = places.begin(); place != places.end();)
        changes_lane(*(place++)->sequence);
    }
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

// Reserves nodes for all sequences that have begun, since each may wait again.
void WaitingQueue::reserve(std::int64_t num_begun) {
  const std::size_t num_nodes = kNodes * static_cast<std::size_t>(num_begun);
  if (spare_.capacity() < num_nodes) spare_.reserve(2 * num_nodes);
  const auto make_room = [&](std::vector<KeyQueue*>& queues) {
    if (queues.capacity() <= queues_.size()) queues.reserve(2 * queues_.size() + 1);
  };
  std::ranges::for_each(not_empty_, make_room);
  make_room(first_);
  std::array<Node, kNodes> nodes;
  for (Node& node : nodes) {
    std::set<QueuedSequence, ByRank> one{{}};
    node = one.extract(one.begin());
  }
  std::move(nodes.begin(), nodes.end(), std::back_inserter(spare_));
}

// A key that was idle gains no credit: its counter rises to the lowest counter of the live keys.
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
  ++num_changes_;
  spare_.resize(spare_.size() - kNodes);
  KeyQueue& queue = *sequence.waiting.queue;
  QUIRE_CHECK(queue.num_live > 0, "a request ends once");
  if (--queue.num_live == 0 && &queue != &background_) last_counter_ = std::max(last_counter_, queue.counter);
}

}  // namespace quire
