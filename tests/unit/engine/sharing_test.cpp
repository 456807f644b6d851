// How the prompts in progress share a step, and that what cannot start does not hold up what can: in steps.
#include <catch2/catch.hpp>
#include <deque>
#include <random>

#include "core/sched/scheduler.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr double kStepSeconds = 0.25;

// A scheduler on a machine whose steps cost 40 ms, 2 ms a stream and 1.5 ms a prompt token.
class ScheduledMachine {
 public:
  explicit ScheduledMachine(SchedulerOptions options, std::int64_t num_blocks = 100'000)
      : kv_(num_blocks, 16, true), scheduler_(with_bound(std::move(options)), kv_) {}

  Sequence& add(Request request) {
    request.arrival = Clock::time_point(std::chrono::milliseconds(++num_added_));
    auto& sequence = sequences_.emplace_back();
    sequence.id = SequenceId{num_added_};
    sequence.tokens = request.prompt;
    sequence.num_prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    sequence.max_chunk = request.sampling.num_prompt_logprobs ? 256 : Sequence::kUnbounded;
    if (sequence.has_bound()) sequence.max_cached_tokens = 0;
    sequence.request = std::make_shared<const Request>(std::move(request));
    scheduler_.add(sequence);
    return sequence;
  }
  Sequence& add(int num_tokens, int seed) { return add(request_of(made_tokens(num_tokens, seed, 50'000), 400)); }

  void step() {
    scheduler_.schedule(plan, limits);
    seconds = StepPrice{.fixed = 0.04, .stream = 0.002, .prompt_token = 0.0015}.seconds(plan.terms);
    scheduler_.commit(plan, {.seconds = seconds});
    for (const StepEntry& entry : plan.entries)
      continue_sequence(*entry.sequence);
    ++num_steps;
  }

  // Steps until the sequence has its first token.
  int steps_to_start(const Sequence& sequence) {
    const int before = num_steps;
    while (sequence.num_generated() == 0 && num_steps - before < 100'000)
      step();
    return num_steps - before;
  }

  StepPlan plan;
  StepLimits limits;
  double seconds = 0.0;
  int num_steps = 0;

 private:
  static SchedulerOptions with_bound(SchedulerOptions options) {
    options.max_step_time_ms = 1000.0 * kStepSeconds;
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

}  // namespace

TEST_CASE("a small request starts within three steps beside prompts of 12,000 tokens", "[sharing]") {
  const int num_long = GENERATE(1, 4, 16);
  const bool identical = GENERATE(false, true);
  ScheduledMachine machine({.max_num_seqs = 64});
  for (int i = 0; i < num_long; ++i)
    machine.add(12'000, identical ? 1 : i);
  for (int i = 0; i < 10; ++i)
    machine.step();
  for (int attempt = 0; attempt < 20; ++attempt)
    CHECK(machine.steps_to_start(machine.add(20, 100 + attempt)) <= 3);
}

TEST_CASE("a small request starts within three steps beside a request with as many choices as there are places",
          "[sharing]") {
  ScheduledMachine machine({.max_num_seqs = 64});
  Request choices = request_of(made_tokens(100, 1), 400);
  choices.num_choices = 64;
  machine.add(choices);
  for (int i = 0; i < 10; ++i)
    machine.step();
  for (int attempt = 0; attempt < 20; ++attempt)
    CHECK(machine.steps_to_start(machine.add(20, 100 + attempt)) <= 3);
}

TEST_CASE("no step is predicted to take longer than its bound, and a long prompt ends beside small ones", "[sharing]") {
  ScheduledMachine machine({.max_num_seqs = 64});
  Sequence& prompt = machine.add(12'000, 1);
  int num_steps = 0;
  for (; prompt.num_generated() == 0 && num_steps < 2000; ++num_steps) {
    // More small prompts than a step has room for.
    for (int i = 0; i < 10; ++i) {
      Request small = request_of(made_tokens(20, 100 + 10 * num_steps + i), 1);
      machine.add(std::move(small));
    }
    machine.step();
    if (num_steps > 10) CHECK(machine.plan.predicted_seconds <= 1.01 * kStepSeconds);
  }
  // A quarter of what a step has room for is its own: 140 tokens fit beside the fixed price.
  CHECK(num_steps <= 12'000 / (140 / 4) + 20);
}

TEST_CASE("whatever is there already, a small request starts within a few steps", "[sharing][property]") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned bound) { return static_cast<int>(random() % bound); };
    SchedulerOptions options{.max_num_seqs = 64};
    if (seed % 3 == 1) options.policy = SchedulerPolicy::kPriority;
    if (seed % 3 == 2) options.policy = SchedulerPolicy::kFair;
    options.target_itl_ms = seed % 2 == 0 ? 150.0 : 0.0;
    ScheduledMachine machine(options);
    for (int i = 0; i < 40; ++i) {
      const int kind = below(4);
      Request hostile = request_of(made_tokens(500 + below(6000), kind == 0 ? 7 : 1000 + i, 50'000), 1 + below(300));
      if (kind == 1) hostile.num_choices = 64;
      if (kind == 2) hostile.sampling.num_prompt_logprobs = 0;
      machine.add(std::move(hostile));
      if (below(2) == 0) machine.step();
    }
    int worst = 0;
    for (int attempt = 0; attempt < 10; ++attempt) {
      Request small = request_of(made_tokens(20, 5000 + attempt), 20);
      if (attempt % 3 == 2) small.sampling.num_prompt_logprobs = 0;
      worst = std::max(worst, machine.steps_to_start(machine.add(std::move(small))));
    }
    CHECK(worst <= 12);
  }
}

TEST_CASE("eight that wait for another's prefix, or for logits, do not hold up the ninth", "[sharing]") {
  const bool logprobs = GENERATE(false, true);
  ScheduledMachine machine({.max_num_seqs = 64});
  machine.add(12'000, 1);
  for (int i = 0; i < 12; ++i) {
    Request gated = request_of(made_tokens(12'000 + i, logprobs ? i : 1, 50'000), 10);
    if (logprobs) gated.sampling.num_prompt_logprobs = 0;
    machine.add(std::move(gated));
  }
  machine.step();
  CHECK(machine.steps_to_start(machine.add(200, 99)) <= 4);
}

TEST_CASE("under priority a place is taken from the less important", "[sharing]") {
  SchedulerOptions options{.max_num_seqs = 2};
  options.policy = SchedulerPolicy::kPriority;
  ScheduledMachine machine(options);
  for (int i = 0; i < 2; ++i) {
    Request worse = request_of(made_tokens(20, i), 1000);
    worse.priority = 5;
    machine.add(std::move(worse));
  }
  for (int i = 0; i < 5; ++i)
    machine.step();
  CHECK(machine.steps_to_start(machine.add(20, 9)) == 1);
}

TEST_CASE("alone a prompt gets a longer step only where an arrival can end it", "[sharing]") {
  ScheduledMachine machine({.max_num_seqs = 4});
  machine.add(12'000, 1);
  for (int i = 0; i < 20; ++i)
    machine.step();
  CHECK(machine.seconds <= 1.05 * kStepSeconds);
  machine.limits.can_end_early = GENERATE(false, true);
  for (int i = 0; i < 2; ++i)
    machine.step();
  CHECK(machine.plan.interruptible == machine.limits.can_end_early);
  CHECK((machine.seconds > 2.0 * kStepSeconds) == machine.limits.can_end_early);
  if (machine.plan.interruptible)
    CHECK(0.04 + 0.0015 * static_cast<double>(machine.plan.slice_tokens) <= 1.05 * kStepSeconds);
  machine.add(5000, 2);
  machine.step();
  CHECK_FALSE(machine.plan.interruptible);
  CHECK(machine.seconds <= 1.05 * kStepSeconds);
}
