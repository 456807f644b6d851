// ScheduledMachine: a scheduler with a cache, on a machine whose steps take the time of a price; sequences get a token
// whenever one is due, and end. One thread at a time.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "core/sched/scheduler.h"
#include "tests/unit/engine/harness.h"

namespace quire::test {

inline constexpr double kStepSeconds = 0.25;

// A scheduler on a machine whose steps cost 40 ms, 2 ms a stream and 1.5 ms a prompt token.
class ScheduledMachine {
 public:
  explicit ScheduledMachine(SchedulerOptions options, std::int64_t num_blocks = 100'000, BlockHash hash = content_hash)
      : kv_(num_blocks, 16, true, hash), scheduler_(with_bound(std::move(options)), kv_) {}

  Sequence& add(Request request, bool continues_list = false) {
    ++num_added_;
    if (request.arrival == Clock::time_point{})
      request.arrival = Clock::time_point(std::chrono::milliseconds(num_added_));
    auto& sequence = sequences_.emplace_back();
    sequence.id = SequenceId{num_added_};
    sequence.tokens = request.prompt;
    sequence.num_prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    sequence.max_chunk = request.sampling.num_prompt_logprobs ? 256 : Sequence::kUnbounded;
    if (sequence.has_bound()) sequence.max_cached_tokens = 0;
    sequence.continues_list = continues_list;
    sequence.request = std::make_shared<const Request>(std::move(request));
    scheduler_.add(sequence);
    return sequence;
  }
  Sequence& add(int num_tokens, int seed) { return add(request_of(made_tokens(num_tokens, seed, 50'000), 400)); }

  // An arrival cuts the first slice of the next step, which took so long until then.
  void cut_step(double until_s) {
    scheduler_.schedule(plan, limits);
    StepOutput output{.cut_slice = true, .seconds = until_s};
    output.end_early(plan, 0);
    scheduler_.commit(plan, output);
    ++num_steps;
  }
  double slice_seconds() const { return price.fixed + price.prompt_token * static_cast<double>(plan.slice_tokens); }

  void step() {
    scheduler_.schedule(plan, limits);
    seconds = price.seconds(plan.terms) / speed;
    scheduler_.commit(plan, {.seconds = seconds});
    for (const StepEntry& entry : plan.entries)
      continue_sequence(*entry.sequence);
    ++num_steps;
  }

  // Starts restoring a part of a waiting sequence's prompt from a lower tier.
  void begin_restore(Sequence& sequence) { kv_.begin_restore(sequence.table); }
  void end_restore(Sequence& sequence) { kv_.end_restore(sequence.table); }
  std::span<Sequence* const> next_to_start() { return scheduler_.next_to_start(); }

  const std::deque<Sequence>& sequences() const { return sequences_; }  // in the order of arrival
  std::uint64_t num_preemptions() const { return scheduler_.num_preemptions(); }

  // Steps until the sequence has its first token.
  int steps_to_start(const Sequence& sequence) {
    const int before = num_steps;
    while (sequence.num_generated() == 0 && num_steps - before < 100'000)
      step();
    return num_steps - before;
  }

  StepPlan plan;
  StepLimits limits;
  StepPrice price{.fixed = 0.04, .stream = 0.002, .prompt_token = 0.0015};
  double speed = 1.0;
  double seconds = 0.0;
  int num_steps = 0;

 private:
  static SchedulerOptions with_bound(SchedulerOptions options) {
    if (options.max_step_time_ms == 0.0) options.max_step_time_ms = 1000.0 * kStepSeconds;
    return options;
  }

  void continue_sequence(Sequence& sequence) {
    if (sequence.num_remaining() > 0) return;
    if (sequence.num_generated() == 0 && !sequence.is_choice) {
      for (int choice = 1; choice < sequence.request->num_choices; ++choice) {
        Sequence& child = sequences_.emplace_back();
        child.id = SequenceId{++num_added_};
        child.request = sequence.request;
        child.tokens = sequence.request->prompt;
        child.num_prompt_tokens = sequence.num_prompt_tokens;
        scheduler_.fork(sequence, child);
        child.tokens.push_back(TokenId{60'000 + choice});
      }
    }
    sequence.max_chunk = sequence.max_cached_tokens = Sequence::kUnbounded;
    sequence.tokens.push_back(TokenId{static_cast<int>(70'000 + sequence.id.value)});
    if (sequence.num_generated() >= sequence.request->sampling.max_tokens) scheduler_.finish(sequence);
  }

  KvCache kv_;
  Scheduler scheduler_;
  std::deque<Sequence> sequences_;
  std::int64_t num_added_ = 0;
};

}  // namespace quire::test
