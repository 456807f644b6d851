// StartCandidates: the waiting sequences that are looked at together, and which of them starts next: in policy order,
// but a shorter one first as long as prompts in progress leave it something of the step. Sequences that cannot start
// take no place among them. Where there is no room for the head (the first in policy order), later ones start as long
// as there is going to be room for it beside them: it waits no longer than for requests that ran when it began to wait.
// Engine thread only.
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
  static constexpr int kMostLooks = 4;  // times in a step that those are replaced which turn out to wait for others

  StartCandidates(const SchedulerOptions& options, KvCache& kv, WaitingQueue& waiting, const Lists& lists,
                  const Background& background, const Running& running);

  // Looks at the first sequences of `lanes`. False where nothing could start.
  bool find(const Pass& pass, Lanes lanes);
  // Takes those without room now out of the candidates and their lanes. Whether others move up in those lanes.
  bool set_roomless_aside();
  // Takes those out that have no room even in `room`.
  void keep_fitting(const KvRoom& room);

  bool empty() const { return candidates_.empty(); }
  // The next to start, or null: it leaves the candidates.
  Sequence* take_next(const Pass& pass);
  // The first in the order of prompts, whatever the prompts in progress leave.
  const Candidate& first() const;
  Candidate take_first();

  // Whether another computes its next tokens, or its media are being encoded: then it leaves its lane.
  bool waits(const Pass& pass, Sequence& sequence, const PrefixMatch& match);
  // Whether it fits now, beside what the running ones and the head may need.
  bool has_room(const Sequence& sequence, const PrefixMatch& match);
  KvRoom room_needed(const Sequence& sequence, const PrefixMatch& match) const;
  // Before it starts: counts what it takes from the head.
  void note_start(const Sequence& sequence);

  // Whether each sequence was looked at since anything changed, and none had room that would fit now.
  bool has_none() const;
  void begin_turn();

 private:
  static constexpr std::size_t kMostOfLane = 24;

  using Iterator = std::vector<Candidate>::const_iterator;
  Iterator first_in_order() const;
  void find_head();
  bool goes_before(const Candidate& a, const Candidate& b) const;
  bool is_oldest(const Pass& pass, const Sequence& head) const;
  bool is_served(const Pass& pass, const Candidate& candidate) const;
  bool may_bypass(const Sequence& sequence) const;
  void note_lack(const KvRoom& need);
  std::int64_t parts_of_step() const;
  KvRoom most_room(const Sequence& sequence) const { return kv_.most_room(sequence.most_tokens()); }

  // The least room that was lacking since something changed.
  struct Lack {
    std::optional<KvRoom> need;
    std::int64_t num_turns = 0;     // of those without room
    std::uint64_t num_changes = 0;  // of what waits, when it began
  };

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
  KvRoom room_beside_blocked_{};  // for all that those which start before it may come to need
  Lack lack_;
};

}  // namespace quire
