// WaitingQueue: the sequences that wait to run, in the order of the policy. Engine thread only; time only as arrival
// times. fcfs and priority keep one queue. Under priority a level weighs priority_aging_s of waiting, so that the order
// of two requests never changes while they wait and nobody starves. fair keeps a queue per key with a counter of the
// tokens it was served, divided by its weight; the lowest counter is next (virtual token counters: Sheng et al., OSDI
// 2024).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/sched/scheduler_options.h"
#include "core/sched/sequence.h"

namespace quire {

// Under kPriority: the arrival in nanoseconds, later by what the priority weighs in waiting.
std::int64_t aged_rank(const Request& request, double priority_aging_s);

class WaitingQueue {
 public:
  explicit WaitingQueue(const SchedulerOptions& options) : options_(options) {}

  void add(Sequence& sequence);     // new, or preempted: those come first where the order is not by time alone
  void remove(Sequence& sequence);  // waiting
  bool empty() const { return num_waiting_ == 0; }
  std::int64_t size() const { return num_waiting_; }

  // Calls visit(sequence, is_first_of_its_queue) over the first `window` of each queue in policy order until it returns
  // false.
  template <class Visit>
  void for_each_first(int window, Visit&& visit);

  // Counts what a key was served; a key is live from its first request's arrival until its last one's end.
  void charge(const Sequence& sequence, std::int64_t num_tokens);
  void began(const Sequence& sequence);
  void ended(const Sequence& sequence);
  void set_key_weights(std::map<std::string, double> weights);

 private:
  struct Place {
    std::int64_t rank;
    std::int64_t id;
    Sequence* sequence;
    bool operator<(const Place& other) const { return rank != other.rank ? rank < other.rank : id < other.id; }
  };
  struct Queue {
    std::set<Place> places;
    double counter = 0.0;
    double weight = 1.0;
    std::int64_t num_live = 0;
  };

  Place place_of(Sequence& sequence) const;
  Queue& queue_of(const Sequence& sequence);
  double weight_of(const std::string& key_name) const;
  std::span<Queue* const> by_counter();

  SchedulerOptions options_;
  std::map<std::string, Queue> queues_;  // by key name; only "" unless fair
  std::vector<Queue*> order_;            // scratch of by_counter
  std::int64_t num_waiting_ = 0;
  double last_counter_ = 0.0;  // of the key that was live last
};

template <class Visit>
void WaitingQueue::for_each_first(int window, Visit&& visit) {
  for (Queue* queue : by_counter()) {
    int left = window;
    for (auto place = queue->places.begin(); place != queue->places.end() && left > 0; ++place, --left) {
      if (!visit(*place->sequence, left == window)) return;
    }
  }
}

}  // namespace quire
