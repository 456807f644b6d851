// Steps longer than others may wait for: their early end, the results kept, the published predictions, and the longest
// step at all.
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "core/engine/step_turns.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/sched/scheduled_machine.h"

using namespace quire;
using namespace quire::test;

namespace {

// A step as it was submitted.
struct Submitted {
  std::vector<std::pair<std::string, std::int64_t>> entries;  // request and tokens
  std::int64_t slice_tokens = 0;
  bool interruptible = false;
  double predicted_s = 0.0;
  double published_s = 0.0;  // while it was computed
};

// An engine of one step in flight, on a machine whose steps cost 10 ms and 1 ms a prompt token; a step may take 250 ms.
struct LongSteps {
  explicit LongSteps(std::shared_ptr<StepTurns> turns = nullptr) : harness(options(std::move(turns))) {
    harness.model.before_slice = [this] {
      ++num_slices;
      if (before_slice) before_slice();
    };
  }
  HarnessOptions options(std::shared_ptr<StepTurns> turns) {
    HarnessOptions options{.num_blocks = 4000, .block_size = 16};
    options.deferred_seed.reset();
    options.price = {.fixed = 0.01, .stream = 0.001, .prompt_token = 0.001};
    options.engine.scheduler.max_num_batched_tokens = 2048;
    options.engine.scheduler.max_step_time_ms = 250.0;
    options.engine.turns = std::move(turns);
    options.on_submit = [this](const StepPlan& plan, const StepArrays& arrays) {
      Submitted step{.entries = {},
                     .slice_tokens = arrays.slice_rows,
                     .interruptible = arrays.interrupt != nullptr,
                     .predicted_s = plan.predicted_seconds,
                     .published_s = harness.engine.stats().predicted_step_s};
      for (const StepEntry& entry : plan.entries)
        step.entries.emplace_back(entry.sequence->request->id, entry.num_tokens);
      steps.push_back(std::move(step));
      num_slices = 0;
    };
    return options;
  }
  // Steps until the only prompt has a step of several slices; returns how much of it was computed before.
  std::int64_t step_until_long() {
    while (steps.empty() || !steps.back().interruptible || steps.back().entries[0].second < 4 * slice()) {
      num_before = harness.model.num_rows;
      harness.step();
    }
    return num_before;
  }
  std::int64_t slice() const { return steps.back().slice_tokens; }

  std::vector<Submitted> steps;
  int num_slices = 0;  // slices begun in the step being computed
  std::int64_t num_before = 0;
  std::function<void()> before_slice;
  Harness harness;
};

Request named(std::string id, Request request) {
  request.id = std::move(id);
  return request;
}

std::vector<TokenId> text_alone(const Request& request) {
  Harness harness({.num_blocks = 4000, .block_size = 16});
  const auto sink = harness.submit(request);
  harness.run();
  return sink->choices[0].tokens;
}

}  // namespace

TEST_CASE("a request that arrives ends a long step after the slice being computed, and what was computed is kept",
          "[long_step]") {
  LongSteps scene;
  Harness& harness = scene.harness;
  const Request lengthy = named("long", request_of(made_tokens(12'000, 1), 5));
  const Request small = named("small", request_of(made_tokens(20, 2), 5));
  const auto first = harness.submit(lengthy);
  scene.step_until_long();
  std::shared_ptr<KeepingSink> second;
  scene.before_slice = [&] {
    if (scene.num_slices == 2) second = harness.submit(small);  // while the second slice is computed
  };
  const std::int64_t num_before = harness.model.num_rows;
  harness.step();
  REQUIRE(second != nullptr);
  const std::int64_t slice = scene.slice();
  CHECK(scene.num_slices == 2);
  CHECK(scene.steps.back().entries.at(0).second > 2 * slice);
  CHECK(harness.model.num_rows == num_before + 2 * slice);
  CHECK(harness.engine.stats().computed_tokens == static_cast<std::uint64_t>(num_before + 2 * slice));
  scene.before_slice = nullptr;
  harness.step();
  // The small prompt is computed whole; the long one gets the rest of a step that others wait for.
  REQUIRE(scene.steps.back().entries.size() == 2);
  CHECK(scene.steps.back().entries[1] == std::pair<std::string, std::int64_t>("small", 20));
  CHECK(scene.steps.back().entries[0].first == "long");
  CHECK_FALSE(scene.steps.back().interruptible);
  CHECK(scene.steps.back().predicted_s <= 1.01 * 0.25);
  CHECK(second->choices[0].tokens.size() == 1);
  harness.run();
  // No row was computed twice, except for each sequence's last token, which is never computed.
  CHECK(harness.model.num_rows == 12'000 + 4 + 20 + 4);
  CHECK(first->choices[0].tokens == text_alone(lengthy));
  CHECK(second->choices[0].tokens == text_alone(small));
}

TEST_CASE("an engine that asks for its turn ends another one's long step after the slice being computed",
          "[long_step]") {
  const auto turns = std::make_shared<StepTurns>();
  LongSteps computing(turns);
  LongSteps asking(turns);
  const auto lengthy = computing.harness.submit(named("long", request_of(made_tokens(12'000, 1), 5)));
  computing.step_until_long();
  std::thread other;
  computing.before_slice = [&] {
    if (computing.num_slices != 2) return;
    asking.harness.submit(named("small", request_of(made_tokens(20, 2), 3)));
    other = std::thread([&] { asking.harness.step(); });
    while (turns->num_waiting() == 0)
      std::this_thread::yield();
  };
  const std::int64_t num_before = computing.harness.model.num_rows;
  computing.harness.step();
  other.join();
  CHECK(computing.num_slices == 2);
  CHECK(computing.harness.model.num_rows == num_before + 2 * computing.slice());
  CHECK(asking.harness.engine.stats().computed_tokens == 16);  // before it knows a price
  // Beside a busy engine, steps are as short as beside a request.
  computing.before_slice = nullptr;
  computing.harness.step();
  CHECK_FALSE(computing.steps.back().interruptible);
  CHECK(computing.steps.back().predicted_s <= 1.01 * 0.25);
  asking.harness.run();
  computing.harness.run();
  CHECK(lengthy->finished());
}

TEST_CASE("while a step is computed its own prediction is published, for the watchdog", "[long_step]") {
  LongSteps scene;
  scene.harness.submit(named("long", request_of(made_tokens(12'000, 1), 3)));
  scene.step_until_long();
  scene.harness.submit(named("small", request_of(made_tokens(20, 2), 3)));
  scene.harness.run();
  std::set<double> predictions;
  for (const Submitted& step : scene.steps) {
    CHECK(step.published_s == step.predicted_s);
    predictions.insert(step.predicted_s);
  }
  CHECK(predictions.size() > 5);
  CHECK(*predictions.begin() == 0.0);  // before any price is known
  CHECK(*predictions.rbegin() > 1.0);  // the long step
}

TEST_CASE("with two steps in flight the longer prediction is published", "[long_step]") {
  std::vector<std::pair<double, double>> steps;  // predicted, published
  Harness* engine = nullptr;
  HarnessOptions options{.num_blocks = 1000, .block_size = 16};
  options.deferred_seed = 3;
  options.price = {.fixed = 0.01, .stream = 0.001, .prompt_token = 0.001};
  options.engine.scheduler.max_step_time_ms = 250.0;
  options.on_submit = [&](const StepPlan& plan, const StepArrays&) {
    steps.emplace_back(plan.predicted_seconds, engine->engine.stats().predicted_step_s);
  };
  Harness harness(options);
  engine = &harness;
  harness.submit(request_of(made_tokens(1500, 1), 20));
  harness.run();
  REQUIRE(steps.size() > 20);
  int num_longer_before = 0;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const auto [before, next] = std::pair(steps[i - 1].first, steps[i].first);
    CHECK(steps[i].second == (before == 0.0 || next == 0.0 ? 0.0 : std::max(before, next)));
    num_longer_before += before > next ? 1 : 0;
  }
  CHECK(num_longer_before > 0);
}

TEST_CASE("streams do not wait for each other where a step's fixed price is half of max_step_time", "[long_step]") {
  ScheduledMachine machine({.max_num_seqs = 32, .target_itl_ms = 150.0, .max_step_time_ms = 250.0});
  machine.price = {.fixed = 0.12, .stream = 0.004, .prompt_token = 0.006};
  for (int i = 0; i < 60; ++i) {  // steps of different lengths teach the prices
    machine.add(request_of(made_tokens(5 + 7 * (i % 9), 10 + i, 50'000), 1 + i % 3));
    machine.step();
  }
  for (int i = 0; i < 16; ++i)
    machine.add(8, 200 + i);
  for (int i = 0; i < 40; ++i)
    machine.step();
  CHECK(machine.plan.num_streaming == 16);
  machine.add(10'000, 1);
  for (int i = 0; i < 20; ++i) {
    machine.step();
    CHECK(machine.plan.num_streaming >= 16);
    CHECK(machine.plan.num_prompt_tokens > 0);
  }
}

TEST_CASE("streams leave no time to a prompt that cannot start yet", "[long_step]") {
  ScheduledMachine machine({.max_num_seqs = 32, .max_step_time_ms = 250.0});
  machine.price = {.fixed = 0.05, .stream = 0.012, .prompt_token = 0.0015};
  for (int i = 0; i < 16; ++i) {
    machine.add(8, 200 + i);
    machine.step();
    machine.step();
  }
  REQUIRE(machine.plan.num_streaming == 16);
  Sequence& prompt = machine.add(2'000, 1);
  machine.begin_restore(prompt);
  machine.step();  // finds that it is restored
  for (int i = 0; i < 10; ++i) {
    machine.step();
    CHECK(machine.plan.num_streaming == 16);
  }
  machine.end_restore(prompt);
  machine.step();
  CHECK(machine.plan.num_streaming < 16);
  CHECK(machine.plan.num_prompt_tokens > 0);
}

TEST_CASE("max_step_time auto: the longer of 250 ms and four times a step's fixed price", "[long_step]") {
  struct Case {
    double fixed_s;
    double bound_s;
  };
  const auto [fixed_s, bound_s] = GENERATE(Case{0.01, 0.25}, Case{0.06, 0.25}, Case{0.07, 0.28}, Case{0.5, 2.0});
  SECTION("in the scheduler") {
    ScheduledMachine machine({.max_num_seqs = 8, .max_step_time_ms = SchedulerOptions::kAutoStepTime});
    machine.price = {.fixed = fixed_s, .stream = 0.002, .prompt_token = 0.0015};
    for (int i = 0; i < 60; ++i) {  // steps of different lengths teach the prices
      machine.add(request_of(made_tokens(5 + 7 * (i % 9), 10 + i, 50'000), 1 + i % 3));
      machine.step();
    }
    machine.add(30'000, 1);
    machine.add(30'000, 2);
    double longest = 0.0;
    for (int i = 0; i < 60; ++i) {
      machine.step();
      longest = std::max(longest, machine.plan.predicted_seconds);
    }
    CHECK(longest == Approx(bound_s).epsilon(0.03));
  }
  SECTION("in the engine") {
    double longest = 0.0;
    HarnessOptions options{.num_blocks = 4000, .block_size = 16};
    options.price = {.fixed = fixed_s, .stream = 0.002, .prompt_token = 0.0015};
    options.engine.scheduler.max_step_time_ms = SchedulerOptions::kAutoStepTime;
    options.deferred_seed = GENERATE(std::optional<std::uint32_t>(), std::optional<std::uint32_t>(3));
    options.on_submit = [&](const StepPlan& plan, const StepArrays&) {
      longest = std::max(longest, plan.predicted_seconds);
    };
    Harness harness(options);
    for (int i = 0; i < 60; ++i) {
      harness.submit(request_of(made_tokens(5 + 7 * (i % 9), 10 + i), 1 + i % 3));
      harness.step();
    }
    // Both have tokens left for longer than is watched: one that is alone has longer steps.
    const auto first = harness.submit(request_of(made_tokens(30'000, 1), 1));
    const auto second = harness.submit(request_of(made_tokens(30'000, 2), 1));
    longest = 0.0;
    for (int i = 0; i < 20; ++i)
      harness.step();
    CHECK_FALSE(first->finished());
    CHECK_FALSE(second->finished());
    CHECK(longest == Approx(bound_s).epsilon(0.03));
  }
}
