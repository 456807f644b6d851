// Background: sequences of background requests use what others leave. Beside others they add at most 6 % to the time of
// the others' streams. They evict cached content of others only until they hold half of the pool. Alone they have the
// whole step. Engine thread only.
#pragma once

#include "core/kv/kv_cache.h"
#include "core/sched/pass.h"
#include "core/sched/running.h"
#include "core/sched/step_cost.h"

namespace quire {

class Background {
 public:
  Background(const KvCache& kv, const StepCost& cost, const Running& running)
      : kv_(kv), cost_(cost), running_(running) {}

  // Whether a waiting background sequence may start. The first one may, whatever room it needs.
  bool has_room(const Sequence& sequence) const;
  // Chooses the background streams that continue beside the chosen streams of others, the oldest first; sets
  // has_foreground and background_seconds.
  void choose_streams(Pass& pass) const;

 private:
  const KvCache& kv_;
  const StepCost& cost_;
  const Running& running_;
};

}  // namespace quire
