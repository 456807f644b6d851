// Displacement: a request that has no place gets one from a running sequence, at most four in a step: from a further
// choice or a list's prompt that has had its turn (eight steps since it returned), or under kPriority from a less
// important class. Background sequences give places and blocks to the first other sequence for which these are enough.
// Engine thread only.
#pragma once

#include "core/kv/kv_cache.h"
#include "core/sched/pass.h"
#include "core/sched/policy/admission_policy.h"
#include "core/sched/policy/start_candidates.h"
#include "core/sched/running.h"
#include "core/sched/scheduler_options.h"

namespace quire {

class Displacement {
 public:
  Displacement(const SchedulerOptions& options, const KvCache& kv, StartCandidates& candidates,
               AdmissionPolicy& admission, Running& running)
      : options_(options), kv_(kv), candidates_(candidates), admission_(admission), running_(running) {}

  void fit(Pass& pass);

 private:
  void displace_background(Pass& pass);
  void take_places(Pass& pass);
  Sequence* choose(const Pass& pass, const Sequence& waiting) const;

  const SchedulerOptions& options_;
  const KvCache& kv_;
  StartCandidates& candidates_;
  AdmissionPolicy& admission_;
  Running& running_;
};

}  // namespace quire
