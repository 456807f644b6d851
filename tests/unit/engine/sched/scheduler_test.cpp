#include "core/sched/scheduler.h"

#include <catch2/catch.hpp>

#include "core/model/parts/adapter.h"
#include "tests/unit/engine/sched/scheduler_scene.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("streams go first, then prompts, the shortest first, fill the budget", "[scheduler]") {
  Scene scene({.max_num_seqs = 8, .max_num_batched_tokens = 16}, 100);
  scene.add(10);
  scene.add(20);
  scene.add(5);
  CHECK(scene.step() == Plan{{0, 10}, {2, 5}});
  CHECK(scene.step() == Plan{{0, 1}, {2, 1}, {1, 14}});
  CHECK(scene.step() == Plan{{0, 1}, {2, 1}, {1, 6}});
  CHECK(scene.step() == Plan{{0, 1}, {1, 1}, {2, 1}});
}

TEST_CASE("streams with one adapter lie side by side", "[scheduler]") {
  Scene scene({.max_num_seqs = 8, .max_num_batched_tokens = 64}, 100);
  const auto one = std::make_shared<const Adapter>(std::vector<Adapter::Layer>(), Adapter::Group(), "one");
  const auto two = std::make_shared<const Adapter>(std::vector<Adapter::Layer>(), Adapter::Group(), "two");
  for (int i = 0; i < 6; ++i) {
    Request request = request_of(made_tokens(4, 100 * i), 1000);
    request.adapter = i % 3 == 0 ? nullptr : i % 3 == 1 ? one : two;
    scene.add(std::make_shared<const Request>(std::move(request)));
  }
  scene.step();
  std::vector<std::int64_t> ids;
  for (const Planned& planned : scene.step())
    ids.push_back(planned.id % 3);
  REQUIRE(ids.size() == 6);
  for (std::size_t i = 0; i < 6; i += 2)
    CHECK(ids[i] == ids[i + 1]);
}

TEST_CASE("no more sequences run than max_num_seqs", "[scheduler]") {
  Scene scene({.max_num_seqs = 2, .max_num_batched_tokens = 64}, 100);
  for (int i = 0; i < 3; ++i)
    scene.add(4);
  CHECK(scene.step() == Plan{{0, 4}, {1, 4}});
  CHECK(scene.step() == Plan{{0, 1}, {1, 1}});
  scene.scheduler.finish(scene.sequences[0]);
  CHECK(scene.step() == Plan{{1, 1}, {2, 4}});
  CHECK(scene.scheduler.num_waiting() == 0);
}

TEST_CASE("without free blocks the youngest is preempted and keeps its place", "[scheduler]") {
  // Three prompts of one block each; the pool has no room for a second block of the third.
  Scene scene({.max_num_seqs = 8, .max_num_batched_tokens = 64}, 5);
  scene.add(4);
  scene.add(4);
  CHECK(scene.step() == Plan{{0, 4}, {1, 4}});
  CHECK(scene.step() == Plan{{0, 1}, {1, 1}});
  for (int i = 0; i < 3; ++i)
    scene.step();
  // Both sequences need a third block, and one is left.
  CHECK(scene.step() == Plan{{0, 1}});
  CHECK(scene.sequences[1].num_preemptions == 1);
  CHECK(scene.sequences[1].num_computed == 0);
  CHECK(scene.kv.pool().num_referenced() == 3);
  scene.add(1);
  CHECK(scene.step() == Plan{{0, 1}});  // the new one does not overtake the preempted one
  scene.scheduler.finish(scene.sequences[0]);
  CHECK(scene.step() == Plan{{1, 9}, {2, 1}});
}

TEST_CASE("one preempted without room lets those start that leave it room, and starts as soon as without them",
          "[scheduler]") {
  struct Others {
    int max_tokens;  // 0: no arrival
    std::size_t num_started;
  };
  const auto [max_tokens, num_others_started] = GENERATE(Others{0, 0}, Others{3, 7}, Others{30, 0});
  Scene scene({.max_num_seqs = 8, .max_num_batched_tokens = 64}, 12);
  Sequence& older = scene.add_short(16, 26);
  Sequence& younger = scene.add_short(12, 30);
  std::size_t num_started = 0;
  for (int step = 0; step < 26; ++step) {
    CHECK(scene.step().front().id == older.id.value);
    if (younger.num_preemptions > 0 && max_tokens > 0) scene.add_short(4, max_tokens);
    num_started += scene.plan.started.size();
  }
  CHECK(older.state == Sequence::State::kDone);
  CHECK(younger.num_preemptions == 1);
  CHECK(num_started == 2 + num_others_started);
  CHECK(scene.step().front() == Planned{younger.id.value, 21});
}

TEST_CASE("victims: lowest priority first, then youngest", "[scheduler]") {
  Scene scene({.max_num_seqs = 8, .max_num_batched_tokens = 64}, 7);
  scene.add(8, "", 1);
  scene.add(8, "", 5);
  scene.add(4, "", 1);
  scene.step();
  // 0 and 2 are of equal priority: 1 is the victim, although 2 is younger.
  CHECK(scene.step() == Plan{{0, 1}, {2, 1}});
  CHECK(scene.sequences[1].num_preemptions == 1);
}

TEST_CASE("of the choices of one request the one that holds most blocks for least progress goes", "[scheduler]") {
  Scene scene({.max_num_seqs = 8, .max_num_batched_tokens = 64}, 13);
  Sequence& older = scene.add(4, "", 1);
  Sequence& small = scene.add(8, "", 5);
  Sequence& large = scene.add_beside(small, 16);
  scene.step();
  for (int i = 0; i < 30 && older.num_preemptions + small.num_preemptions + large.num_preemptions == 0; ++i)
    scene.step();
  CHECK(older.num_preemptions == 0);
  CHECK(small.num_preemptions == 0);
  CHECK(large.num_preemptions == 1);
}

TEST_CASE("a preempted sequence swaps where that costs less than computing, by what both cost", "[scheduler]") {
  // 1 ms a prompt token, as scene.step() says: a block of four tokens costs 4 ms to compute.
  struct Case {
    std::optional<double> swap_block_s;
    Preemption preemption;
    std::uint64_t num_swaps;
  };
  for (const Case& each : {Case{0.0001, Preemption::kCheaper, 1}, Case{0.1, Preemption::kCheaper, 0},
                           Case{0.0, Preemption::kCheaper, 1}, Case{std::nullopt, Preemption::kSwap, 0},
                           Case{0.1, Preemption::kSwap, 1}, Case{0.0001, Preemption::kRecompute, 0}}) {
    SchedulerOptions options{.max_num_seqs = 8, .max_num_batched_tokens = 64};
    options.preemption = each.preemption;
    Scene scene(options, 5, true);
    scene.limits.swap_block_s = each.swap_block_s;
    scene.add(4);
    scene.add(4);
    for (int i = 0; i < 6; ++i)
      scene.step();
    CHECK(scene.scheduler.num_preemptions() == 1);
    CHECK(scene.scheduler.num_swaps() == each.num_swaps);
  }
}

TEST_CASE("under priority a preempted sequence ages as a waiting one does", "[scheduler]") {
  // The older one is of the worse priority, but 3 s older, which weighs more than its two levels of a second each.
  SchedulerOptions options{.max_num_seqs = 8, .max_num_batched_tokens = 64};
  options.policy = SchedulerPolicy::kPriority;
  options.priority_aging_s = GENERATE(1.0, 10.0);
  Scene scene(options, 5);
  Sequence& older = scene.add(4, "", 2);
  scene.pass(2);
  Sequence& younger = scene.add(4, "", 0);
  for (int i = 0; i < 6; ++i)
    scene.step();
  CHECK(older.num_preemptions == (options.priority_aging_s == 1.0 ? 0 : 1));
  CHECK(younger.num_preemptions == (options.priority_aging_s == 1.0 ? 1 : 0));
}

TEST_CASE("any priority a client can send has its place in the order", "[scheduler]") {
  SchedulerOptions options{.max_num_seqs = 1, .max_num_batched_tokens = 64};
  options.policy = SchedulerPolicy::kPriority;
  options.priority_aging_s = 1e9;
  Scene scene(options, 100);
  scene.add(4, "", std::numeric_limits<std::int32_t>::max());
  scene.add(4, "", 0);
  scene.add(4, "", std::numeric_limits<std::int32_t>::min());
  std::vector<std::int64_t> order;
  for (int i = 0; i < 3; ++i) {
    order.push_back(scene.step()[0].id);
    scene.scheduler.finish(*scene.plan.entries[0].sequence);
  }
  CHECK(order == std::vector<std::int64_t>{2, 1, 0});
}

TEST_CASE("priority goes first, and waiting outweighs it in time", "[scheduler]") {
  SchedulerOptions options{.max_num_seqs = 1, .max_num_batched_tokens = 64};
  options.policy = SchedulerPolicy::kPriority;
  options.priority_aging_s = 2.0;
  Scene scene(options, 100);
  scene.add(4, "", 0);
  scene.step();
  scene.add(4, "", 3);  // arrives at 1 s: as one of priority 0 that arrives at 7 s
  scene.add(4, "", 0);
  for (int i = 0; i < 6; ++i)
    scene.add(4, "", 0);  // from 3 s on; the fifth of them at 7 s
  std::vector<std::int64_t> order;
  for (int i = 0; i < 8; ++i) {
    scene.scheduler.finish(*scene.plan.entries[0].sequence);
    order.push_back(scene.step()[0].id);
  }
  CHECK(order == std::vector<std::int64_t>{2, 3, 4, 5, 6, 1, 7, 8});
}

TEST_CASE("fair shares follow the weights", "[scheduler]") {
  const double weight = GENERATE(1.0, 3.0);
  SchedulerOptions options{.max_num_seqs = 4, .max_num_batched_tokens = 64};
  options.policy = SchedulerPolicy::kFair;
  options.key_weights = {{"light", weight}};
  Scene scene(options, 1000);
  std::map<std::string, std::int64_t> served;
  std::map<std::string, int> waiting;
  for (int step = 0; step < 20'000; ++step) {
    while (waiting["heavy"] < 50) {
      scene.add(20, "heavy");
      ++waiting["heavy"];
    }
    while (waiting["light"] < 4) {
      scene.add(20, "light");
      ++waiting["light"];
    }
    for (const Planned& planned : scene.step()) {
      Sequence& sequence = scene.sequences[static_cast<std::size_t>(planned.id)];
      const std::string& key = sequence.request->key_name;
      served[key] += planned.num_tokens;
      if (sequence.has_started && sequence.num_computed == planned.num_tokens) --waiting[key];
      if (sequence.num_generated() >= 10) scene.scheduler.finish(sequence);
    }
  }
  const double ratio = static_cast<double>(served["light"]) / static_cast<double>(served["heavy"]);
  CHECK(ratio > 0.95 * weight);
  CHECK(ratio < 1.05 * weight);
}

TEST_CASE("under fair no more prompts start than a step has room for", "[scheduler]") {
  SchedulerOptions options{.max_num_seqs = 64, .max_num_batched_tokens = 64};
  options.policy = SchedulerPolicy::kFair;
  Scene scene(options, 1000);
  for (int i = 0; i < 20; ++i)
    scene.add(20, "key " + std::to_string(i));
  CHECK(scene.step() == Plan{{0, 20}, {1, 20}, {2, 20}, {3, 4}});
  CHECK(scene.scheduler.num_running() == 4);
}

TEST_CASE("weights that change hold for keys that are live already", "[scheduler]") {
  SchedulerOptions options{.max_num_seqs = 1, .max_num_batched_tokens = 64};
  options.policy = SchedulerPolicy::kFair;
  Scene scene(options, 100);
  for (const char* key : {"a", "b"}) {
    for (int i = 0; i < 8; ++i)
      scene.add(8, key);
  }
  std::map<std::string, int> served;
  const auto serve_one = [&] {
    scene.step();
    Sequence& sequence = *scene.plan.entries[0].sequence;
    ++served[sequence.request->key_name];
    scene.scheduler.finish(sequence);
  };
  serve_one();
  serve_one();
  CHECK(served == std::map<std::string, int>{{"a", 1}, {"b", 1}});
  scene.scheduler.set_key_weights({{"b", 3.0}});
  for (int i = 0; i < 8; ++i)
    serve_one();
  CHECK(served == std::map<std::string, int>{{"a", 3}, {"b", 7}});
}

TEST_CASE("fair is work-conserving, and idleness earns nothing", "[scheduler]") {
  SchedulerOptions options{.max_num_seqs = 1, .max_num_batched_tokens = 64};
  options.policy = SchedulerPolicy::kFair;
  Scene scene(options, 100);
  for (int i = 0; i < 6; ++i)
    scene.add(8, "a");
  std::vector<std::int64_t> order;
  const auto serve_one = [&] {
    order.push_back(scene.step()[0].id);
    scene.scheduler.finish(*scene.plan.entries[0].sequence);
  };
  for (int i = 0; i < 3; ++i)
    serve_one();  // alone, "a" gets everything
  for (int i = 0; i < 4; ++i)
    scene.add(8, "b");
  for (int i = 0; i < 6; ++i)
    serve_one();
  // "b" begins level with "a": they alternate at once.
  CHECK(order == std::vector<std::int64_t>{0, 1, 2, 3, 6, 4, 7, 5, 8});
}

TEST_CASE("of the first in the queue, one that finds its prompt cached goes ahead, a bounded number of times",
          "[scheduler]") {
  Scene scene({.max_num_seqs = 1, .max_num_batched_tokens = 64}, 100, true);
  const std::vector<TokenId> known = made_tokens(16, 7);
  scene.add(known);
  scene.step();
  Sequence& cold = scene.add(16);
  int num_ahead = 0;
  while (cold.state == Sequence::State::kWaiting) {
    scene.add(known);
    scene.scheduler.finish(*scene.plan.entries[0].sequence);
    scene.step();
    ++num_ahead;
  }
  CHECK(num_ahead == 9);  // the eight that it let pass, and its own step
}

TEST_CASE("prompt chunks shrink to the target latency while someone streams", "[scheduler]") {
  struct Case {
    double target_ms;
    std::int64_t chunk;
  };
  const auto [target_ms, chunk] = GENERATE(Case{50.0, 80}, Case{15.0, 10}, Case{1.0, 6});
  SchedulerOptions options{.max_num_seqs = 8, .max_num_batched_tokens = 1000};
  options.target_itl_ms = target_ms;
  Scene scene(options, 10'000);
  // 10 ms for streams, 0.5 ms for each prompt token. If streams alone take longer than the target, prompts get a
  // quarter of the step.
  const auto step = [&] {
    scene.scheduler.schedule(scene.plan, scene.limits);
    const double seconds = 0.010 + 0.0005 * static_cast<double>(scene.plan.num_prompt_tokens);
    const std::int64_t num_prompt_tokens = scene.plan.num_prompt_tokens;
    scene.scheduler.commit(scene.plan, {.seconds = seconds});
    for (const StepEntry& entry : scene.plan.entries) {
      if (entry.sequence->num_remaining() == 0) entry.sequence->tokens.push_back(TokenId{1});
    }
    return num_prompt_tokens;
  };
  scene.add(4);
  step();
  for (int i = 0; i < 30; ++i)
    step();
  scene.add(20'000);
  std::int64_t last = 0;
  for (int i = 0; i < 60; ++i)
    last = step();
  CHECK(last >= chunk * 9 / 10);
  CHECK(last <= chunk);
  scene.scheduler.finish(scene.sequences[0]);
  CHECK(step() == 1000);  // no stream: the whole budget
}

TEST_CASE("prompts that are computed whole share a step as far as they fit, and one alone may be longer",
          "[scheduler]") {
  SchedulerOptions options;
  options.max_num_batched_tokens = 100;
  options.whole_prompts = true;
  Scene scene(options, 200);
  for (const int length : {60, 30, 20, 250, 40})
    scene.add(length);
  CHECK(scene.scheduler.max_step_tokens() == 800);
  CHECK(scene.step() == Plan{{1, 30}, {2, 20}, {4, 40}});
  for (const int done : {1, 2, 4})
    scene.scheduler.finish(scene.sequences[static_cast<std::size_t>(done)]);
  CHECK(scene.step() == Plan{{0, 60}});
  scene.scheduler.finish(scene.sequences[0]);
  CHECK(scene.step() == Plan{{3, 250}});
}

TEST_CASE("short texts do not keep a long one waiting where prompts are computed whole", "[scheduler]") {
  SchedulerOptions options;
  options.max_num_batched_tokens = 100;
  options.whole_prompts = true;
  Scene scene(options, 400);
  Sequence& long_one = scene.add(500);
  int steps = 0;
  for (; long_one.num_computed == 0 && steps < 20; ++steps) {
    for (int i = 0; i < 5; ++i)
      scene.add(20);
    scene.step();
    for (Sequence& sequence : scene.sequences) {
      if (&sequence != &long_one && sequence.state == Sequence::State::kRunning && sequence.num_generated() > 0)
        scene.scheduler.finish(sequence);
    }
  }
  CHECK(long_one.num_computed == 500);
  CHECK(steps <= 5);
}

TEST_CASE("a request that can never run is refused", "[scheduler]") {
  Scene scene({.max_num_seqs = 2, .max_num_batched_tokens = 64}, 10);
  CHECK(scene.scheduler.max_model_len() == 40);
  Request request = request_of(made_tokens(30, 1), 10);
  CHECK(scene.scheduler.check(request).has_value());
  request.sampling.max_tokens = 11;
  CHECK(scene.scheduler.check(request).error().code == "context_length_exceeded");
  request.sampling.max_tokens = 1;
  request.num_choices = 3;
  CHECK(scene.scheduler.check(request).error().param == "n");
}

TEST_CASE("choices of a request wait for places like any other sequence, and hold none meanwhile", "[scheduler]") {
  Scene scene({.max_num_seqs = 3, .max_num_batched_tokens = 64}, 100, true);
  Sequence& parent = scene.add(8);
  Sequence& other = scene.add(4);
  CHECK(scene.step() == Plan{{0, 8}, {1, 4}});
  Sequence& running = scene.fork(parent);
  Sequence& waiting = scene.fork(parent);
  CHECK(running.state == Sequence::State::kRunning);
  CHECK(waiting.state == Sequence::State::kWaiting);
  CHECK(scene.step() == Plan{{0, 1}, {2, 1}, {1, 1}});
  scene.scheduler.finish(other);
  // The first choice has computed its prompt: one token is left.
  CHECK(scene.step() == Plan{{0, 1}, {2, 1}, {3, 1}});
  CHECK(waiting.num_computed == 9);
}
