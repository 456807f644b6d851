// Background requests use the remainder of a step's time, of places and of blocks.
#include <catch2/catch.hpp>
#include <deque>

#include "core/sched/scheduler.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr StepPrice kMachinePrice{.fixed = 0.04, .stream = 0.002, .prompt_token = 0.0015};
constexpr SchedulerPolicy kPolicies[] = {SchedulerPolicy::kFcfs, SchedulerPolicy::kPriority, SchedulerPolicy::kFair};

// A scheduler whose steps cost kMachinePrice.
class SharedMachine {
 public:
  explicit SharedMachine(SchedulerOptions options = {}, std::int64_t num_blocks = 10'000)
      : kv_(num_blocks, 16, true), scheduler_(options, kv_) {}

  Sequence& add(int num_tokens, int max_tokens, bool is_background, std::string key = "") {
    Request request = request_of(made_tokens(num_tokens, ++num_added_, 50'000), max_tokens);
    request.is_background = is_background;
    request.key_name = std::move(key);
    request.arrival = Clock::time_point(std::chrono::milliseconds(num_added_));
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = SequenceId{num_added_};
    sequence.tokens = request.prompt;
    sequence.num_prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    sequence.request = std::make_shared<const Request>(std::move(request));
    scheduler_.add(sequence);
    return sequence;
  }

  void step() {
    scheduler_.schedule(plan);
    seconds = kMachinePrice.seconds(plan.terms);
    foreground = StepTerms{};
    num_background = num_foreground = 0;
    for (const StepEntry& entry : plan.entries) {
      const bool is_background = entry.sequence->request->is_background;
      ++(is_background ? num_background : num_foreground);
      if (!is_background) foreground.add_stream(entry.sequence->num_computed, entry.num_tokens);
    }
    scheduler_.commit(plan, {.seconds = seconds});
    for (const StepEntry& entry : plan.entries) {
      Sequence& sequence = *entry.sequence;
      if (sequence.num_remaining() > 0) continue;
      sequence.tokens.push_back(TokenId{1 + static_cast<int>(sequence.num_generated())});
      if (sequence.num_generated() == sequence.request->sampling.max_tokens) scheduler_.finish(sequence);
    }
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i)
      step();
  }
  int steps_to_start(const Sequence& sequence) {
    int count = 0;
    for (; sequence.num_generated() == 0 && count < 1000; ++count)
      step();
    return count;
  }
  const KvCache& kv() const { return kv_; }
  bool idle() const { return scheduler_.idle(); }
  std::uint64_t num_preemptions() const { return scheduler_.num_preemptions(); }

  StepPlan plan;
  double seconds = 0.0;
  StepTerms foreground;  // terms of the step's streams
  int num_background = 0;
  int num_foreground = 0;

 private:
  KvCache kv_;
  Scheduler scheduler_;
  std::deque<Sequence> sequences_;
  int num_added_ = 0;
};

SchedulerOptions options_of(SchedulerPolicy policy, std::int32_t max_num_seqs = 64) {
  SchedulerOptions options;
  options.policy = policy;
  options.max_num_seqs = max_num_seqs;
  options.target_itl_ms = 150.0;
  options.max_step_time_ms = SchedulerOptions::kAutoStepTime;
  return options;
}

}  // namespace

TEST_CASE("beside streams the background adds a small part to each step, prompts included", "[background]") {
  const SchedulerPolicy policy = GENERATE(from_range(std::begin(kPolicies), std::end(kPolicies)));
  SharedMachine machine(options_of(policy));
  for (int i = 0; i < 8; ++i)
    machine.add(64, 2000, false);
  machine.steps(50);  // prices are learned
  for (int i = 0; i < 16; ++i)
    machine.add(400, 100, true);
  int num_background = 0;
  for (int i = 0; i < 300; ++i) {
    machine.step();
    REQUIRE(machine.num_foreground == 8);
    CHECK(machine.seconds <= 1.1 * kMachinePrice.seconds(machine.foreground));
    num_background += machine.num_background;
  }
  CHECK(num_background > 200);  // and uses that part
}

TEST_CASE("alone the background has the whole step", "[background]") {
  SharedMachine machine(options_of(SchedulerPolicy::kFcfs));
  for (int i = 0; i < 16; ++i)
    machine.add(32, 200, true);
  machine.steps(50);
  machine.step();
  CHECK(machine.num_background == 16);
}

TEST_CASE("a request gets the place of a background one", "[background]") {
  const SchedulerPolicy policy = GENERATE(from_range(std::begin(kPolicies), std::end(kPolicies)));
  SharedMachine machine(options_of(policy, 4));
  for (int i = 0; i < 12; ++i)
    machine.add(32, 1000, true, "batch");
  machine.steps(20);
  REQUIRE(machine.num_background == 4);
  const Sequence& user = machine.add(32, 10, false, "user");
  CHECK(machine.steps_to_start(user) == 1);
  CHECK(machine.num_preemptions() == 1);
}

TEST_CASE("a request gets the blocks of background ones, and they go on later", "[background]") {
  SharedMachine machine(options_of(SchedulerPolicy::kFcfs), 40);
  std::vector<Sequence*> background;
  for (int i = 0; i < 4; ++i)
    background.push_back(&machine.add(128, 30, true));
  machine.steps(12);
  REQUIRE(machine.num_background == 4);
  const Sequence& user = machine.add(400, 10, false);
  machine.step();
  CHECK(user.num_computed > 0);
  CHECK(machine.num_preemptions() > 0);
  for (int i = 0; i < 1000 && !machine.idle(); ++i)
    machine.step();
  CHECK(machine.idle());
  for (const Sequence* each : background)
    CHECK(each->num_generated() == 30);
}

TEST_CASE("background sequences are not given up for what they could not make room for", "[background]") {
  SharedMachine machine(options_of(SchedulerPolicy::kFcfs), 64);
  machine.add(400, 100, false);  // 32 of the 64 blocks at its end
  machine.add(64, 300, true);
  machine.steps(5);
  machine.add(600, 10, false);  // 39 blocks: waits for the first
  machine.steps(20);
  CHECK(machine.num_preemptions() == 0);
}

TEST_CASE("what waits goes before background requests that came first", "[background]") {
  const SchedulerPolicy policy = GENERATE(from_range(std::begin(kPolicies), std::end(kPolicies)));
  SharedMachine machine(options_of(policy, 1));
  machine.add(32, 5, false, "a");
  machine.step();
  const Sequence& background = machine.add(32, 5, true, "a");
  const Sequence& user = machine.add(200, 5, false, "a");
  machine.steps_to_start(user);
  CHECK(background.num_generated() == 0);
  CHECK(machine.steps_to_start(background) < 20);
}

TEST_CASE("under fair a key's background requests do not count against it", "[background]") {
  SharedMachine machine(options_of(SchedulerPolicy::kFair, 1));
  for (int i = 0; i < 4; ++i)
    machine.add(64, 50, true, "a");
  machine.steps(120);  // the key "a" was served a lot
  const Sequence& first = machine.add(32, 20, false, "a");
  const Sequence& second = machine.add(32, 20, false, "b");
  machine.steps_to_start(first);
  CHECK(second.num_generated() == 0);  // level: the one that came first
}

TEST_CASE("a batch leaves users half of the pool's cached prefixes, and runs to its end", "[background]") {
  for (const SchedulerPolicy policy : kPolicies) {
    SharedMachine machine(options_of(policy), 200);
    for (int i = 0; i < 30; ++i)
      machine.add(96, 1, false);
    while (!machine.idle())
      machine.step();
    CHECK(machine.kv().pool().num_cached(CacheClass::kPlain) >= 180);
    for (int i = 0; i < 40; ++i)
      machine.add(160, 16, true);
    int num_steps = 0;
    int most_at_once = 0;
    for (; !machine.idle() && num_steps < 10'000; ++num_steps) {
      machine.step();
      most_at_once = std::max(most_at_once, machine.num_background);
    }
    CHECK(machine.idle());
    CHECK(most_at_once >= 6);
    CHECK(machine.kv().pool().num_cached(CacheClass::kPlain) >= 80);
    machine.kv().check_integrity();
  }
}

TEST_CASE("a request of a batch that takes most of the pool runs all the same", "[background]") {
  SharedMachine machine(options_of(SchedulerPolicy::kFcfs), 20);
  machine.add(200, 1, false);
  while (!machine.idle())
    machine.step();
  machine.add(290, 8, true);
  machine.steps(50);
  CHECK(machine.idle());
}

TEST_CASE("a background request that gets no rows when it is admitted keeps the block copied for it", "[background]") {
  Request first = request_of(made_tokens(7, 1, 62), 0);
  first.pooling = Pooling::kLast;
  Request later = request_of(first.prompt, 12);
  later.prompt.back() = TokenId{(first.prompt.back().value + 1) % 62};
  for (const TokenId token : made_tokens(32, 2, 62))
    later.prompt.push_back(token);
  later.is_background = true;

  Harness alone({.deferred_seed = std::nullopt});
  const auto expected = alone.submit(later);
  alone.run();

  // A step in flight computes the first request's last row when the second one is admitted.
  Harness harness({.deferred_seed = 1});
  harness.submit(first);
  harness.step();
  const auto sink = harness.submit(later);
  harness.run();
  CHECK(harness.engine.stats().prefix_cache_hits == 6);
  CHECK(sink->choices[0].tokens == expected->choices[0].tokens);
}
