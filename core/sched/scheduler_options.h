// The settings of the scheduler. Plain; immutable once given to a Scheduler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace quire {

enum class SchedulerPolicy {
  kFcfs,      // in order of arrival
  kPriority,  // lower Request::priority first; waiting ages a request by one level each priority_aging_s
  kFair,      // the key that was served least for its weight first
};

// How a preempted sequence gets its blocks back.
enum class Preemption {
  kCheaper,    // the cheaper of the two below for this sequence
  kSwap,       // its blocks move to the host tier when their places are needed, and back later
  kRecompute,  // its evicted blocks are computed again
};

struct SchedulerOptions {
  std::int32_t max_num_seqs = 256;             // sequences in one step
  std::int32_t max_num_batched_tokens = 2048;  // tokens in one step
  std::int64_t max_model_len = 0;  // prompt + generated tokens of a sequence; 0: as many as model and pool allow
  SchedulerPolicy policy = SchedulerPolicy::kFcfs;
  double priority_aging_s = 30.0;               // seconds of waiting that weigh as much as one level of priority
  std::map<std::string, double> key_weights{};  // under kFair; keys not named weigh 1
  // Each prompt is computed in one step, whatever its length: the model attends in both directions.
  bool whole_prompts = false;
  bool prefix_aware = true;  // the most cached prompt first, among the first waiting requests
  Preemption preemption = Preemption::kCheaper;
  double target_itl_ms = 0.0;  // > 0: prompt chunks shrink while a sequence streams, so that steps take this long
  // Longest predicted time of a step while a request waits or streams; 0: no limit. kAutoStepTime: the longer of 250 ms
  // and four times a step's fixed price.
  double max_step_time_ms = 0.0;
  static constexpr double kAutoStepTime = -1.0;
};

// Drafts that one step verifies, of all sequences. The memory of their logits is that of prompts' logprobs.
inline constexpr std::int64_t kMostDraftsOfStep = 32;

// Most tokens that one step draws: one for each sequence, one for each of as many forked choices, and those after
// drafts.
inline std::int64_t max_step_draws(std::int64_t max_num_seqs) {
  return 2 * max_num_seqs + kMostDraftsOfStep;
}

// A prompt that is computed whole may exceed the budget by itself.
inline std::int64_t max_step_tokens(const SchedulerOptions& options, std::int64_t max_model_len) {
  const std::int64_t budget = options.max_num_batched_tokens;
  return options.whole_prompts ? std::max(budget, max_model_len) : budget;
}

}  // namespace quire
