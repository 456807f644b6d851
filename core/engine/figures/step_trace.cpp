#include "core/engine/figures/step_trace.h"

#include <new>

#include "core/engine/generation.h"

namespace quire {

void StepTrace::note_entries(StepRecord& record, const StepPlan& plan) const noexcept {
  record.entries.clear();
  if (!active()) return;
  try {
    for (const StepEntry& entry : plan.entries) {
      const Generation& generation = Generation::of(*entry.sequence);
      record.entries.push_back({generation.request->id, generation.choice, entry.num_tokens,
                                generation.num_computed < generation.num_prompt_tokens});
    }
  } catch (const std::bad_alloc&) {
    record.entries.clear();
  }
}

void StepTrace::add(StepRecord& record) noexcept {
  const std::lock_guard lock(mutex_);
  if (records_.size() >= max_steps_) return;
  try {
    records_.emplace_back();
  } catch (const std::bad_alloc&) {
    return;
  }
  records_.back() = std::move(record);
}

}  // namespace quire
