// WaitingQueue: the sequences that wait to run, in the order of the policy and by length. Engine thread only; time only
// as arrival times. fcfs and priority keep one queue. Under priority a level weighs priority_aging_s of waiting, so
// that the order of two requests never changes while they wait and none starves. fair keeps a queue per key with a
// counter of the tokens it was served, divided by its weight; the lowest counter is next (virtual token counters: Sheng
// et al., OSDI 2024). Each kind of waiting has a lane with its own order. A parked sequence is in no lane until the
// tokens that it waits for are computed. Between began() and ended() of its sequences nothing is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/sched/scheduler_options.h"
#include "core/sched/sequence.h"

namespace quire {

// The level of background requests, less important than any other.
inline constexpr std::int64_t kBackgroundLevel = std::int64_t{1} << 62;

// The rank under kPriority: the arrival in nanoseconds, plus the waiting time that the priority weighs.
std::int64_t aged_rank(const Request& request, double priority_aging_s);

// The kinds of waiting, kept apart so that many sequences of one kind never hide those of another. Each kind that can
// start has a second lane, for sequences that had no room when the scheduler looked at them.
enum class Lane : std::uint8_t {
  kRequests,
  kBounded,  // with a bounded chunk
  kChoices,  // further choices of a request
  kLists,    // prompts of a list after its first
  kBackground,
  kBackgroundBounded,
  kFirstWithoutRoom,                                   // in the order of the kinds above
  kRestoring = kFirstWithoutRoom + kFirstWithoutRoom,  // blocks are brought back from a lower tier, or media encoded
  kBackgroundRestoring,
};
inline constexpr unsigned kNumStartingKinds = static_cast<unsigned>(Lane::kFirstWithoutRoom);
inline constexpr std::size_t kNumLanes = 2 * kNumStartingKinds + 2;

// A set of lanes, one bit each.
using Lanes = std::uint32_t;
constexpr Lanes only(Lane lane) {
  return Lanes{1} << static_cast<unsigned>(lane);
}
// Both lanes of a kind that can start.
constexpr Lanes both(Lane kind) {
  return only(kind) | only(kind) << kNumStartingKinds;
}
inline constexpr Lanes kAllLanes = (Lanes{1} << kNumLanes) - 1;
// Requests without a place, and all that waits outside of the background.
inline constexpr Lanes kPlacelessLanes = both(Lane::kRequests) | both(Lane::kBounded);
inline constexpr Lanes kForegroundLanes = kPlacelessLanes | both(Lane::kChoices) | both(Lane::kLists);
// All lanes whose sequences can start.
inline constexpr Lanes kStartingLanes = kForegroundLanes | both(Lane::kBackground) | both(Lane::kBackgroundBounded);

struct QueuedSequence {
  std::int64_t rank;        // in policy order
  std::int64_t importance;  // class under priority
  std::int64_t length;      // tokens
  std::int64_t id;
  Sequence* sequence;
};
struct ByRank {
  bool operator()(const QueuedSequence& a, const QueuedSequence& b) const;
};
struct ByLength {
  bool operator()(const QueuedSequence& a, const QueuedSequence& b) const;
};

// The waiting sequences of one key under kFair, otherwise of all keys. Background requests have a queue of their own.
struct KeyQueue {
  struct Orders {
    std::set<QueuedSequence, ByRank> by_rank;
    std::set<QueuedSequence, ByLength> by_length;
    std::size_t place = 0;  // among the queues whose lane is not empty
  };
  std::array<Orders, kNumLanes> lanes;
  double counter = 0.0;
  double weight = 1.0;
  std::int64_t num_live = 0;
  std::int64_t number = 0;  // in the order in which keys came
};

// The first and last sequence of a lane's current turn. Turns go through its sequences key by key, by rank.
struct LaneTurn {
  static constexpr std::int64_t kFirst = std::numeric_limits<std::int64_t>::min();
  struct Place {
    std::int64_t number = 0;  // the key's
    QueuedSequence last{kFirst, 0, 0, kFirst, nullptr};
  };

  std::uint64_t turn = 0;
  Place begin;
  Place end;
};

class WaitingQueue {
 public:
  explicit WaitingQueue(const SchedulerOptions& options) : options_(options) {}

  void add(Sequence& sequence);     // new or preempted; preempted ones come first unless the order is by time alone
  void remove(Sequence& sequence);  // waiting, parked or not
  bool empty() const { return num_waiting_ == 0; }
  std::int64_t size() const { return num_waiting_; }
  // The number without those whose blocks are restored or whose media are encoded.
  std::int64_t num_ready() const { return num_waiting_ - num_unready_; }
  // Counts the events after which a sequence may start that could not before: one was added, woken or restored, or one
  // ended.
  std::uint64_t num_changes() const { return num_changes_; }

  // Takes `sequence` out of the order until `behind` has computed `until` tokens, or is woken.
  void park(Sequence& sequence, Sequence& behind, std::int64_t until);
  void wake(Sequence& behind);           // all that are parked behind it
  void wake_computed(Sequence& behind);  // if one of them waits for no more than it has computed

  // Moves a sequence that had no room to the lane without room of its kind. False if it is there already.
  bool set_aside(Sequence& sequence);
  // Begins another turn: collect() returns further sequences of each lane without room.
  void begin_turn() { ++turn_; }
  // The number of turns in which collect() returns each sequence without room once.
  std::int64_t turns_of_all() const;

  // Appends from each of `lanes` the first `window` of each key in policy order and the `window` shortest, key by key
  // in the order of their counters, at most `most` of a lane and each sequence once. A lane without room adds up to
  // kMostInTurn sequences whose turn it is.
  void collect(Lanes lanes, std::size_t window, std::size_t most, std::vector<Sequence*>& found);
  static constexpr std::size_t kMostInTurn = 8;
  // Moves the sequences whose restores have ended to the lanes of their kinds.
  void leave_restoring_lanes();

  // Orders two waiting sequences by the counters of their keys, then in policy order.
  bool comes_before(Sequence& a, Sequence& b) const;

  // Counts the tokens that a key was served; a key is live from its first request's arrival until its last one's end.
  void charge(const Sequence& sequence, std::int64_t num_tokens);
  double counter(const Sequence& sequence) const;
  // The class of a request, lower first: its priority under kPriority. Background requests have the last class.
  std::int64_t class_of(const Request& request) const;
  void began(Sequence& sequence);
  void ended(const Sequence& sequence);
  void set_key_weights(std::map<std::string, double> weights);

 private:
  using Node = std::set<QueuedSequence, ByRank>::node_type;

  QueuedSequence place_of(Sequence& sequence) const;
  std::vector<KeyQueue*>& queues_of(Lane lane) { return not_empty_[static_cast<std::size_t>(lane)]; }
  void enter(Sequence& sequence);
  void leave(Sequence& sequence);
  bool changes_lane(Sequence& sequence);
  void collect_lane(Lane lane, std::size_t window, std::size_t most, std::vector<Sequence*>& found);
  void collect_turn(Lane lane, std::size_t first, std::vector<Sequence*>& found);
  Node node_of(const QueuedSequence& place);
  void reserve(std::int64_t num_begun);
  double weight_of(const std::string& key_name) const;
  std::span<KeyQueue* const> first_by_counter(Lane lane, std::size_t most);

  SchedulerOptions options_;
  std::map<std::string, KeyQueue> queues_;  // by key name; only "" unless fair
  KeyQueue background_;
  std::array<std::vector<KeyQueue*>, kNumLanes> not_empty_;  // by lane, in no order
  std::vector<KeyQueue*> first_;                             // scratch of first_by_counter
  std::array<LaneTurn, kNumStartingKinds> turns_{};          // for each lane without room
  std::uint64_t turn_ = 0;
  std::vector<Node> spare_;  // two for each sequence that has begun and is in no lane
  std::int64_t num_begun_ = 0;
  std::int64_t num_waiting_ = 0;
  std::int64_t num_unready_ = 0;  // in the restoring lanes
  std::uint64_t num_changes_ = 0;
  double last_counter_ = 0.0;  // highest counter of a key that became idle
};

}  // namespace quire
