#include "core/sched/policy/lists.h"

#include <algorithm>

namespace quire {

namespace {

// Seconds of a step for lists. Short, because an arriving request waits for the rest of such a step.
constexpr double kListStep = 0.025;
constexpr std::int64_t kListsAlone = 64;       // steps without other sequences, after which lists get whole steps
constexpr std::int32_t kPlacesNotOfLists = 4;  // lists leave every fourth place free

}  // namespace

void Lists::begin_step(std::int64_t num_sequences) {
  num_steps_alone_ = num_sequences == num_ ? num_steps_alone_ + 1 : 0;
}

double Lists::step_seconds() const {
  if (num_ == 0 || options_.max_step_time_ms == 0.0 || num_steps_alone_ > kListsAlone) return kNoTimeLimit;
  return std::max(kListStep, cost_.least_step_seconds());
}

bool Lists::has_place() const {
  return running_.num_of_lists() < options_.max_num_seqs - options_.max_num_seqs / kPlacesNotOfLists;
}

}  // namespace quire
