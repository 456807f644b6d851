// AdmissionPolicy: starts waiting sequences as long as there are places. If a sequence cannot start (another computes
// its prefix, its media are not encoded, it has no room), later candidates are tried. A choice or a list's prompt that
// returns to a place keeps it for eight steps. Engine thread only. Invariant: a start that fails changes no block.
#pragma once

#include <cstdint>

#include "core/kv/kv_cache.h"
#include "core/sched/pass.h"
#include "core/sched/policy/lists.h"
#include "core/sched/policy/start_candidates.h"
#include "core/sched/running.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/waiting_queue.h"

namespace quire {

class AdmissionPolicy {
 public:
  AdmissionPolicy(const SchedulerOptions& options, KvCache& kv, WaitingQueue& waiting, const Lists& lists,
                  StartCandidates& candidates, Running& running)
      : options_(options), kv_(kv), waiting_(waiting), lists_(lists), candidates_(candidates), running_(running) {}

  void fit(Pass& pass);
  // Starts the sequence if there is room for it. Returns whether it runs.
  bool try_start(Pass& pass, Sequence& sequence);

  std::uint64_t prefix_queries() const { return prefix_queries_; }  // prompt tokens looked up when starting
  std::uint64_t prefix_hits() const { return prefix_hits_; }

 private:
  void start(Pass& pass, Sequence& sequence, const PrefixMatch& match);

  const SchedulerOptions& options_;
  KvCache& kv_;
  WaitingQueue& waiting_;
  const Lists& lists_;
  StartCandidates& candidates_;
  Running& running_;
  std::uint64_t prefix_queries_ = 0;
  std::uint64_t prefix_hits_ = 0;
};

}  // namespace quire
