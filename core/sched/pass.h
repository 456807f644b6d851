// Pass: the value of one schedule(): the rows and time that are left of the step, the prompts in progress and the share
// of each. Each policy takes it as an argument and leaves the unused rest to the next one. Engine thread only.
// Invariants: plan.num_tokens + num_rows is the step's budget, but for a prompt that is computed whole; the sequences
// of entries keep their blocks until the plan is committed.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/sched/sequence.h"
#include "core/sched/step_plan.h"
#include "core/sched/waiting_queue.h"

namespace quire {

inline constexpr double kNoTimeLimit = std::numeric_limits<double>::infinity();

// The order in which prompts get tokens: by class under kPriority, lists last; under kFair by the tokens that their
// keys have been served; then the shortest remainder first.
struct PromptOrder {
  std::int64_t importance;
  bool continues_list;
  double counter;
  std::int64_t num_remaining;
  Clock::time_point arrival;
  std::int64_t id;

  PromptOrder(const WaitingQueue& waiting, const Sequence& sequence, std::int64_t num_remaining);
  // The order of a running prompt, which is as urgent as the most urgent sequence parked behind it.
  PromptOrder(const WaitingQueue& waiting, const Sequence& running);
  bool operator<(const PromptOrder& other) const;
};

// A prompt in progress, and its share of the step.
struct PromptShare {
  Sequence* sequence;
  PromptOrder order;
  std::int64_t num_tokens = 0;
};

// Tokens and time that streams leave to prompts.
struct PromptBudget {
  std::int64_t num_tokens = 0;        // left
  double seconds = kNoTimeLimit;      // left
  double all_seconds = kNoTimeLimit;  // `seconds` before prompts got any
  double kept_from_lists_s = 0.0;     // share of `seconds` that lists' prompts may not use
  std::int64_t num_given = 0;         // tokens
};

struct Pass {
  StepPlan& plan;
  const StepLimits& limits;
  std::vector<PromptShare>& prompts;  // in progress, in their order
  std::int64_t step = 0;              // its number
  std::int64_t num_rows = 0;          // left
  std::int64_t num_bounded = 0;       // tokens of sequences with a bounded chunk, and drafts
  PromptBudget for_prompts{};
  bool has_foreground = false;      // a sequence outside of the background runs
  double background_seconds = 0.0;  // time left for the background, with has_foreground
  bool is_short_of_memory = false;  // a stream was preempted for another's blocks

  void place(Sequence& sequence, std::int64_t num_tokens);
  void add_prompt(const PromptShare& share);
};

}  // namespace quire
