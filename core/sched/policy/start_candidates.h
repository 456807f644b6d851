// StartCandidates: the waiting sequences that are considered together, and the choice of the next one to start. Shorter
// ones come first while prompts in progress leave them tokens of the step, but the head (the first in policy order) is
// bypassed at most eight times, or twice if it is a further choice. Sequences that cannot start are no candidates. A
// head without room waits for no sequence that started after it began to wait: later ones start only if the head will
// have room once the sequences that ran before have ended. Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/kv/kv_cache.h"
#include "core/sched/pass.h"
#include "core/sched/policy/background.h"
#include "core/sched/policy/lists.h"
#include "core/sched/policy/parking.h"
#include "core/sched/running.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/waiting_queue.h"

namespace quire {

class StartCandidates {
 public:
  struct Candidate {
    Sequence* sequence;
    PrefixMatch match;
    PromptOrder order;
  };
  static constexpr int kMostLooks = 4;  // times per step that new candidates replace ones that must wait

  StartCandidates(const SchedulerOptions& options, KvCache& kv, WaitingQueue& waiting, const Lists& lists,
                  const Background& background, const Running& running);

  // Collects candidates from `lanes`. False if none can start.
  bool find(const Pass& pass, Lanes lanes);
  // Moves candidates without room out of their lanes. Returns whether others move up.
  bool set_roomless_aside();
  // Drops candidates that do not fit even in `room`.
  void keep_fitting(const KvRoom& room);

  bool empty() const { return candidates_.empty(); }
  // Removes and returns the next candidate to start, or null.
  Sequence* take_next(const Pass& pass);
  // The first candidate in the order of prompts, even if prompts in progress leave it no tokens.
  const Candidate& first() const;
  Candidate take_first();

  // Whether another sequence computes its next tokens, or its media are being encoded. If so, it leaves its lane.
  bool waits(const Pass& pass, Sequence& sequence, const PrefixMatch& match);
  // Whether the sequence fits now, besides the room that running sequences and the head may need.
  bool has_room(const Sequence& sequence, const PrefixMatch& match);
  KvRoom room_needed(const Sequence& sequence, const PrefixMatch& match) const;
  // Called before a start: counts the room that it takes from the head, and that the head was bypassed.
  void note_start(const Sequence& sequence);

  // Whether all sequences were considered since the last change, and none has room now.
  bool has_none();
  void begin_turn();

 private:
  static constexpr std::size_t kMostOfLane = 24;

  using Iterator = std::vector<Candidate>::const_iterator;
  Iterator first_in_order() const;
  // The smallest room that was lacking since the queue's last change.
  struct Lack {
    std::optional<KvRoom> need;
    std::int64_t num_turns = 0;     // turns of the lanes without room
    std::uint64_t num_changes = 0;  // the queue's num_changes() at the beginning
  };

  void find_head();
  bool goes_before(const Candidate& a, const Candidate& b) const;
  bool is_oldest(const Pass& pass, const Sequence& head) const;
  bool is_served(const Pass& pass, const Candidate& candidate) const;
  bool may_bypass(const Sequence& sequence) const;
  Lack& lack();  // reset if the queue has changed
  void note_lack(const KvRoom& need);
  std::int64_t parts_of_step() const;
  KvRoom most_room(const Sequence& sequence) const { return kv_.most_room(sequence.most_tokens()); }

  const SchedulerOptions& options_;
  KvCache& kv_;
  WaitingQueue& waiting_;
  const Lists& lists_;
  const Background& background_;
  const Running& running_;
  Parking parking_;
  std::vector<Sequence*> collected_;  // scratch of find()
  std::vector<Candidate> candidates_;
  Sequence* head_ = nullptr;      // the first candidate in policy order
  Sequence* blocked_ = nullptr;   // the head, where there is no room for it
  KvRoom room_beside_blocked_{};  // for sequences that start before the blocked one
  Lack lack_;
};

}  // namespace quire
