#include "core/sched/pass.h"

#include <algorithm>
#include <tuple>

namespace quire {

PromptOrder::PromptOrder(const WaitingQueue& waiting, const Sequence& sequence, std::int64_t remaining)
    : importance(waiting.class_of(*sequence.request)),
      continues_list(sequence.continues_list),
      counter(waiting.counter(sequence)),
      num_remaining(remaining),
      arrival(sequence.request->arrival),
      id(sequence.id.value) {}

PromptOrder::PromptOrder(const WaitingQueue& waiting, const Sequence& running)
    : PromptOrder(waiting, running, running.num_remaining()) {
  const Sequence* const waits = running.waiting.first_parked;
  if (waits == nullptr) return;
  const std::int64_t left = waits->num_tokens() - running.num_computed;
  *this = std::min(*this, PromptOrder(waiting, *waits, std::max<std::int64_t>(left, 1)));
}

bool PromptOrder::operator<(const PromptOrder& other) const {
  return std::tie(importance, continues_list, counter, num_remaining, arrival, id) <
         std::tie(other.importance, other.continues_list, other.counter, other.num_remaining, other.arrival, other.id);
}

void Pass::place(Sequence& sequence, std::int64_t num_tokens) {
  plan.entries.push_back({&sequence, num_tokens});
  plan.num_tokens += num_tokens;
  sequence.num_scheduled = num_tokens;
  num_rows -= num_tokens;
}

void Pass::add_prompt(const PromptShare& share) {
  const auto place = std::upper_bound(prompts.begin(), prompts.end(), share,
                                      [](const PromptShare& a, const PromptShare& b) { return a.order < b.order; });
  prompts.insert(place, share);
}

}  // namespace quire
