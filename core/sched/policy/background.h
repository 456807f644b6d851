// Background: its sequences use what others leave: beside them a small part of a step's time, and half of the pool once
// nothing is free. Alone they have the whole step. Engine thread only.
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

  // Whether a waiting one may start. One at least runs, whatever it takes.
  bool has_room(const Sequence& sequence) const;
  // Which of its streams continue beside the chosen streams of others, the oldest first; sets has_foreground and
  // background_seconds.
  void choose_streams(Pass& pass) const;

 private:
  const KvCache& kv_;
  const StepCost& cost_;
  const Running& running_;
};

}  // namespace quire
