#include "core/sched/step_plan.h"

#include <algorithm>
#include <utility>

namespace quire {

void StepOutput::end_early(const StepPlan& plan, std::int64_t num_rows) {
  entries.clear();
  for (const StepEntry& entry : plan.entries) {
    const std::int64_t num_computed = std::min(num_rows, entry.num_tokens);
    entries.push_back({num_computed});
    num_rows -= num_computed;
  }
}

StepTerms StepOutput::terms_of(const StepPlan& plan) const {
  if (entries.empty()) return plan.terms;
  StepTerms terms;
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const std::int64_t from = plan.entries[i].sequence->num_computed;
    if (std::cmp_less(i, plan.num_streaming)) {
      terms.add_stream(from, entries[i].num_computed);
    } else {
      terms.add_prompt(from, entries[i].num_computed);
    }
  }
  return terms;
}

}  // namespace quire
