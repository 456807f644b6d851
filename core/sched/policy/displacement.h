// Displacement: gives the places of running sequences to waiting requests, at most four in a step. A further choice or
// a list's prompt gives its place after its turn (eight steps since it returned), and under kPriority a sequence of a
// less important class. Background sequences give theirs, with their blocks, to the first other sequence for which that
// is enough. Engine thread only.
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
