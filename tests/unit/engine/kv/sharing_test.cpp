// Division of steps among the prompts in progress; a prompt that cannot start holds up no other. Counted in steps.
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "tests/unit/engine/sched/scheduled_machine.h"

using namespace quire;
using namespace quire::test;

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
  // The long prompt gets a quarter of a step's room: 140 tokens fit beside the fixed price.
  CHECK(num_steps <= 12'000 / (140 / 4) + 20);
}

TEST_CASE("streams have half of a step's bound, however much the least chunk of a prompt costs", "[sharing]") {
  ScheduledMachine machine({.max_num_seqs = 64});
  // A large model on a small machine: sixteen tokens of a prompt take 0.21 of the 0.25 seconds.
  machine.price = {.fixed = 0.05, .stream = 0.013, .prompt_token = 0.013};
  constexpr int kStreams = 24;
  for (int i = 0; i < kStreams; ++i)
    machine.add(8, i);
  for (const Sequence& sequence : machine.sequences()) {
    if (sequence.num_generated() == 0) machine.steps_to_start(sequence);
  }
  Sequence& prompt = machine.add(2'000, 100);
  for (int i = 0; i < 20; ++i)
    machine.step();
  std::vector<std::int64_t> before;
  for (int i = 0; i < kStreams; ++i)
    before.push_back(machine.sequences()[static_cast<std::size_t>(i)].num_generated());
  const std::int64_t computed_before = prompt.num_computed;
  constexpr int kSteps = 60;
  for (int i = 0; i < kSteps; ++i)
    machine.step();
  REQUIRE(prompt.num_generated() == 0);
  // Five fit half of the bound beside the fixed price.
  for (std::size_t i = 0; i < kStreams; ++i)
    CHECK(machine.sequences()[i].num_generated() - before[i] >= kSteps * 4 / kStreams);
  CHECK(prompt.num_computed - computed_before >= kSteps * 4);
}

TEST_CASE("streams that exceed a step's bound take turns, and what comes starts beside them", "[sharing]") {
  ScheduledMachine machine({.max_num_seqs = 300});
  for (int i = 0; i < 200; ++i)
    machine.add(20, i);
  for (int i = 0; i < 40; ++i)
    machine.step();
  // Together they would take 0.44 s: two steps of at most 105.
  std::map<const Sequence*, int> last_step;
  int longest_gap = 0;
  const Sequence* small = nullptr;
  for (int i = 0; i < 200; ++i) {
    if (i == 100) small = &machine.add(20, 999);
    machine.step();
    if (i == 103) CHECK(small->num_generated() > 0);
    CHECK(machine.plan.predicted_seconds <= 1.01 * kStepSeconds);
    for (const StepEntry& entry : machine.plan.entries) {
      const auto [last, is_first] = last_step.try_emplace(entry.sequence, machine.num_steps);
      if (!is_first) longest_gap = std::max(longest_gap, machine.num_steps - last->second);
      last->second = machine.num_steps;
    }
  }
  CHECK(last_step.size() == 201);
  CHECK(longest_gap <= 3);
}

TEST_CASE("no step is predicted to take longer than its bound, whatever is there", "[sharing][property]") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned bound) { return static_cast<int>(random() % bound); };
    SchedulerOptions options{.max_num_seqs = 400};
    options.policy = static_cast<SchedulerPolicy>(seed % 3);
    ScheduledMachine machine(options, 3000);  // too few for all
    int num_long = 0;
    for (int i = 0; i < 200; ++i) {
      for (int come = below(6); come > 0; --come)
        machine.add(20 + below(i % 16 == 0 ? 5000 : 300), 1000 * i + come);
      machine.step();
      if (i > 10 && machine.plan.predicted_seconds > 1.01 * kStepSeconds) ++num_long;
    }
    CHECK(num_long == 0);
  }
}

TEST_CASE("whatever comes, the first that waits starts once those that ran when it became the first have ended",
          "[sharing][property]") {
  int num_firsts = 0;
  std::uint64_t num_preemptions = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned bound) { return static_cast<int>(random() % bound); };
    ScheduledMachine machine({.max_num_seqs = 64}, 80);  // too few blocks for what comes
    const Sequence* first = nullptr;
    int num_bypassed = 0;
    std::set<const Sequence*> ran;  // running when it became first or was last overtaken
    int num_steps_too_long = 0;
    for (int i = 0; i < 400; ++i) {
      machine.add(request_of(made_tokens(16 + below(i % 8 == 0 ? 300 : 60), 1000 + i, 50'000), 1 + below(200)));
      machine.step();
      const auto& all = machine.sequences();
      const auto now = std::ranges::find(all, Sequence::State::kWaiting, &Sequence::state);
      if (now == all.end()) continue;
      const auto runs = [](const Sequence* each) { return each->state == Sequence::State::kRunning; };
      if (first != &*now || num_bypassed != now->num_bypassed) {
        num_firsts += first != &*now ? 1 : 0;
        first = &*now;
        num_bypassed = first->num_bypassed;
        ran.clear();
        for (const Sequence& each : all) {
          if (runs(&each)) ran.insert(&each);
        }
      }
      std::erase_if(ran, [&](const Sequence* each) { return !runs(each); });
      if (ran.empty()) ++num_steps_too_long;
    }
    CHECK(num_steps_too_long == 0);
    num_preemptions += machine.num_preemptions();
  }
  CHECK(num_firsts > 100);
  CHECK(num_preemptions > 100);
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

TEST_CASE("beside lists a request finds a place, and starts in the next step, which is short", "[sharing]") {
  constexpr double kListSeconds = 0.12;  // three times the fixed price
  SchedulerOptions options{.max_num_seqs = 64};
  options.policy = GENERATE(SchedulerPolicy::kFcfs, SchedulerPolicy::kPriority, SchedulerPolicy::kFair);
  ScheduledMachine machine(options);
  const auto is_of_list = [](const Sequence& each) { return each.continues_list; };
  for (int i = 0; i < 300; ++i)
    machine.add(request_of(made_tokens(6, i, 50'000), 4), true);
  for (int i = 0; i < 10; ++i)
    machine.step();
  for (int i = 0; i < 30; ++i) {
    CHECK(machine.steps_to_start(machine.add(request_of(made_tokens(20, 1000 + i), 3))) == 1);
    CHECK(machine.plan.predicted_seconds <= 1.01 * (kListSeconds + 20 * 0.0015));
    machine.step();
    CHECK(machine.plan.predicted_seconds <= 1.01 * kListSeconds);
  }
  // The lists advanced meanwhile, and advance even beside endless requests of this kind.
  CHECK(std::ranges::count_if(machine.sequences(), [&](const Sequence& each) {
          return is_of_list(each) && each.state == Sequence::State::kDone;
        }) > 100);
  const auto have_lists = [&] {
    return std::ranges::any_of(machine.sequences(), [&](const Sequence& each) {
      return is_of_list(each) && each.state != Sequence::State::kDone;
    });
  };
  const int before = machine.num_steps;
  while (have_lists() && machine.num_steps < before + 1000) {
    machine.add(request_of(made_tokens(20, 2000 + machine.num_steps), 3));
    machine.step();
  }
  CHECK(machine.num_steps < before + 1000);
}

TEST_CASE("lists that are alone for long have whole steps", "[sharing]") {
  ScheduledMachine machine({.max_num_seqs = 64});
  for (int i = 0; i < 2000; ++i)
    machine.add(request_of(made_tokens(6, i, 50'000), 10), true);
  double longest = 0.0;
  for (int i = 0; i < 100; ++i) {
    machine.step();
    if (i > 70) longest = std::max(longest, machine.plan.predicted_seconds);
  }
  CHECK(longest > 0.16);
  CHECK(longest <= 1.01 * kStepSeconds);
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
  CHECK(machine.plan.cuts_slices == machine.limits.can_end_early);
  machine.add(5000, 2);
  machine.step();
  CHECK_FALSE(machine.plan.interruptible);
  CHECK_FALSE(machine.plan.cuts_slices);
  CHECK(machine.seconds <= 1.05 * kStepSeconds);
}

TEST_CASE("what other engines leave bounds prompt tokens, and neither one stream alone nor many", "[sharing]") {
  ScheduledMachine machine({.max_num_seqs = 16});
  machine.limits = {.is_awaited = true, .can_end_early = true, .max_seconds = 0.05};
  const auto num_rows_of = [&](const Sequence& sequence) {
    for (const StepEntry& entry : machine.plan.entries) {
      if (entry.sequence == &sequence) return entry.num_tokens;
    }
    return std::int64_t{0};
  };
  const Sequence& alone = machine.add(20, 1);
  machine.steps_to_start(alone);
  for (int i = 0; i < 10; ++i) {
    machine.step();
    CHECK(num_rows_of(alone) == 1);
    CHECK_FALSE(machine.plan.interruptible);
  }
  // A step of 15 streams takes 70 ms: more than is left, but none is left out. Prompts get a quarter of it.
  for (int i = 2; i < 16; ++i)
    machine.add(20, i);
  while (machine.sequences().back().num_generated() == 0)
    machine.step();
  const Sequence& prompt = machine.add(3000, 99);
  for (int i = 0; i < 10; ++i) {
    machine.step();
    CHECK(machine.plan.num_streaming == 15);
    CHECK(num_rows_of(prompt) > 10);
    CHECK(machine.seconds <= 1.05 * 0.070 / 0.75);
    CHECK_FALSE(machine.plan.interruptible);
  }
}

TEST_CASE("a stream alone has steps of its own token, which nothing needs to end early", "[sharing]") {
  ScheduledMachine machine({.max_num_seqs = 16});
  machine.limits.can_end_early = true;
  const Sequence& alone = machine.add(1000, 1);
  machine.steps_to_start(alone);
  for (int i = 0; i < 10; ++i) {
    machine.step();
    CHECK(machine.plan.num_tokens == 1);
    CHECK_FALSE(machine.plan.interruptible);
    CHECK(machine.plan.slice_tokens == 0);
  }
  CHECK(machine.steps_to_start(machine.add(20, 2)) == 1);
}

// The watchdog in server/ops/systemd.h takes a slower step for a hang.
TEST_CASE(
    "whatever comes, no step takes ten times what it was predicted to take, the machine six times slower included",
    "[sharing][property]") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned bound) { return static_cast<int>(random() % bound); };
    ScheduledMachine machine({.max_num_seqs = 64});
    machine.limits.can_end_early = seed % 2 == 0;
    double worst = 0.0;
    for (int i = 0; i < 300; ++i) {
      if (i % 50 == 49) machine.speed = std::array{1.0, 0.25, 1.5}[static_cast<std::size_t>(below(3))];
      for (int come = below(4) == 0 ? below(5) : 0; come > 0; --come)
        machine.add(
            request_of(made_tokens(1 + below(i % 8 == 0 ? 9000 : 300), 1000 * i + come, 50'000), 1 + below(60)));
      machine.step();
      if (!machine.plan.empty() && machine.plan.predicted_seconds > 0.0)
        worst = std::max(worst, machine.seconds / machine.plan.predicted_seconds);
    }
    CHECK(worst > 1.0);
    CHECK(worst < 10.0);
  }
}

TEST_CASE("slices longer than a step may be come back a while after an arrival has cut one", "[sharing]") {
  constexpr double kLongSlice = 20 * 0.04;  // seconds: where the fixed price is a twentieth
  ScheduledMachine machine({.max_num_seqs = 4, .max_num_batched_tokens = 2048});
  for (int i = 1; i <= 20; ++i) {  // steps of different lengths teach the prices
    machine.add(request_of(made_tokens(5 * i, 10 + i), 1));
    machine.step();
  }
  machine.limits.can_end_early = true;
  const Sequence& prompt = machine.add(60'000, 1);
  for (int i = 0; i < 8; ++i)
    machine.step();
  CHECK(machine.plan.cuts_slices);
  CHECK(machine.slice_seconds() > 2.0 * kStepSeconds);
  CHECK(machine.slice_seconds() <= 1.05 * kLongSlice);
  const std::int64_t num_computed = prompt.num_computed;
  machine.cut_step(0.5);
  CHECK(prompt.num_computed == num_computed);
  double uncut_s = 0.0;
  do {
    machine.step();
    CHECK(machine.slice_seconds() <= 1.05 * kStepSeconds);
    uncut_s += machine.seconds;
  } while (uncut_s < 19 * kLongSlice);
  while (!machine.plan.cuts_slices && uncut_s < 40 * kLongSlice) {
    machine.step();
    uncut_s += machine.seconds;
  }
  CHECK(machine.plan.cuts_slices);
}
