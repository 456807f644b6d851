// The order of two sequences that compete for blocks or for a place. Value functions; any thread.
#pragma once

#include <cstdint>
#include <tuple>

#include "core/sched/sequence.h"

namespace quire {

// Lower is more important: the level, then the older, then the first made.
using Importance = std::tuple<std::int64_t, Clock::time_point, SequenceId>;

inline Importance importance(const Sequence& sequence) {
  return {sequence.level, sequence.request->arrival, sequence.id};
}

inline bool more_important(const Sequence* a, const Sequence* b) {
  return importance(*a) < importance(*b);
}

inline bool equally_important(const Sequence& a, const Sequence& b) {
  return a.level == b.level && a.request->arrival == b.request->arrival;
}

}  // namespace quire
