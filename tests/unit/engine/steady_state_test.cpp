// Costs that must not grow with load or time: the allocations of a schedule, and of a whole step in which no request
// comes or goes.
#include <catch2/catch.hpp>

#include "core/grammar/compiler.h"
#include "core/grammar/mask/vocabulary.h"
#include "core/sched/scheduler.h"
#include "tests/support/crowded_scheduler.h"
#include "tests/unit/engine/allocations.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

// Takes events and drops them.
class CountedSink final : public OutputSink {
 public:
  void send(OutputEvent event) noexcept override { num_tokens += event.tokens.size(); }
  std::size_t num_tokens = 0;
};

std::shared_ptr<CountedSink> submitted(Engine& engine, int number, int max_tokens, bool greedy,
                                       std::shared_ptr<const Grammar> grammar = nullptr) {
  Request request = request_of(made_tokens(10 + number, number, 60), max_tokens);
  request.id = std::to_string(number);
  request.key_name = number % 2 == 0 ? "a key with a name too long to lie inside of a string" : "b";
  if (!greedy) {
    request.sampling.temperature = grammar == nullptr ? 0.8F : 100.0F;  // each way through a grammar is soon taken
    request.sampling.seed = number;
    request.sampling.top_k = 20;
    request.sampling.top_p = 0.9F;
  }
  if (grammar != nullptr) request.sampling.min_tokens = max_tokens;  // the end would come by chance
  if (number % 4 == 1) request.sampling.repetition_penalty = 1.1F;
  if (number % 4 == 2) request.sampling.dry.multiplier = 0.5F;
  if (number % 4 == 3) {
    request.sampling.frequency_penalty = 0.2F;
    request.sampling.penalty_last_n = 64;
  }
  request.grammar = std::move(grammar);
  auto sink = std::make_shared<CountedSink>();
  const Result<void> accepted = engine.queue().submit({std::make_shared<const Request>(std::move(request)), sink});
  REQUIRE(accepted);
  return sink;
}

// Allows every second token.
class EvenGrammar : public Grammar {
 public:
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(); }

 private:
  class State : public GrammarState {
   public:
    void assign(const GrammarState&) override {}
    void fill_mask(std::span<std::uint32_t> mask) override { std::fill(mask.begin(), mask.end(), 0x55555555U); }
    bool accept(TokenId) override { return true; }
    bool finished() const override { return false; }
    std::span<const TokenId> forced_tokens() override { return {}; }
  };
};

// Steps until everything streams and arrays have their final size, then counts over `num_steps`.
std::int64_t allocations_of(Engine& engine, int num_warm, int num_steps) {
  kEngineThread.assume();
  Clock::time_point now{std::chrono::seconds(1000)};
  for (int i = 0; i < num_warm; ++i)
    engine.step(now);
  const std::int64_t before = num_allocations();
  for (int i = 0; i < num_steps; ++i)
    engine.step(now);
  return num_allocations() - before;
}

}  // namespace

TEST_CASE("a schedule that admits and preempts allocates nothing", "[scheduler][steady]") {
  Crowd crowd{.num_running = 100, .num_waiting = 1000, .num_keys = 20};
  crowd.policy = GENERATE(SchedulerPolicy::kFcfs, SchedulerPolicy::kPriority, SchedulerPolicy::kFair);
  // Choices give up their places, or the pool is too small for the running sequences.
  crowd.num_choices = GENERATE(8, 1);
  crowd.num_blocks = crowd.num_choices > 1 ? 5000 : 1600;
  CrowdedScheduler scheduler(crowd);
  std::int64_t num_allocated = 0;
  std::int64_t num_admitted = 0;
  std::size_t num_preempted = 0;
  for (int step = 0; step < 3000; ++step) {
    const std::int64_t before = num_allocations();
    scheduler.schedule();
    num_allocated += num_allocations() - before;
    num_admitted += scheduler.num_admitted;
    num_preempted += scheduler.plan.preempted.size();
    scheduler.commit();
    scheduler.turn_over();
  }
  CHECK(num_allocated == 0);
  CHECK(num_admitted > 500);
  CHECK(num_preempted > 50);
  CHECK(scheduler.scheduler().num_waiting() >= 1000);
}

TEST_CASE("a step without arrivals and ends allocates nothing", "[engine][steady]") {
  const SchedulerPolicy policy = GENERATE(SchedulerPolicy::kFcfs, SchedulerPolicy::kPriority, SchedulerPolicy::kFair);
  HarnessOptions options{.num_blocks = 4000};
  options.engine.scheduler.policy = policy;
  options.engine.scheduler.max_num_seqs = 16;
  options.engine.scheduler.max_model_len = 1000;
  Harness harness(options);
  harness.model.sequences_a_step.reserve(10'000);
  const auto grammar = std::make_shared<EvenGrammar>();
  std::vector<std::shared_ptr<CountedSink>> sinks;
  for (int i = 0; i < 50; ++i)  // 34 of them wait
    sinks.push_back(submitted(harness.engine, i, 600, i % 2 == 0, i % 3 == 0 ? grammar : nullptr));
  CHECK(allocations_of(harness.engine, 40, 200) == 0);
  CHECK(harness.engine.stats().num_running == 16);
  CHECK(harness.engine.stats().num_waiting == 34);
  CHECK(sinks[0]->num_tokens > 200);
}

TEST_CASE("a step with compiled grammars, penalties, windows and DRY allocates nothing either", "[engine][steady]") {
  HarnessOptions options{.num_blocks = 20'000, .vocab = 257, .eos = {TokenId{256}}};
  options.engine.scheduler.max_num_seqs = 8;
  options.engine.scheduler.max_model_len = 10'000;
  options.deferred_seed.reset();
  Harness harness(options);
  harness.model.sequences_a_step.reserve(10'000);
  const GrammarCompiler compiler(std::make_shared<TokenVocabulary>(TokenVocabulary::bytes_only()));
  const auto grammar = [&](GrammarSpec::Kind kind, const char* text) {
    GrammarSpec spec;
    spec.kind = kind;
    spec.text = text;
    return *compiler.compile(spec);
  };
  // Endless texts whose states are soon all prepared; a generation's stack has been compacted by then.
  using Kind = GrammarSpec::Kind;
  const std::vector<std::shared_ptr<const Grammar>> grammars = {
      grammar(Kind::kJsonSchema, R"({"type":"array","items":{"enum":["ab","ac",12,13.5,true]},"minItems":100000})"),
      grammar(Kind::kJsonSchema, R"({"type":"array","minItems":100000,"items":{"type":"object","properties":{
          "a":{"enum":[1,2]},"b":{"type":"boolean"}},"required":["a"],"additionalProperties":false}})"),
      grammar(Kind::kRegex, R"((?!cad)([a-d]{3} )*)"),
      grammar(Kind::kEbnf, "root ::= word root | word\nword ::= \"(\" word \")\" | [ab] word | [ab] \" \"\n"),
  };
  std::vector<std::shared_ptr<CountedSink>> sinks;
  for (int i = 0; i < 8; ++i)
    sinks.push_back(submitted(harness.engine, i, 8000, i < 4, grammars[static_cast<std::size_t>(i) % 4]));
  CHECK(allocations_of(harness.engine, 3000, 1000) == 0);
  CHECK(harness.engine.stats().num_running == 8);
}

TEST_CASE("a step of a real model on the CPU allocates nothing either", "[engine][steady][model]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  EngineOptions options;
  options.scheduler.max_num_seqs = 8;
  ServedModel served(path, 400, options);
  const auto grammar = std::make_shared<EvenGrammar>();
  std::vector<std::shared_ptr<CountedSink>> sinks;
  for (int i = 0; i < 8; ++i)
    sinks.push_back(submitted(*served.engine, i, 400, i % 2 == 0, i % 3 == 0 ? grammar : nullptr));
  CHECK(allocations_of(*served.engine, 40, 300) == 0);
  CHECK(sinks[0]->num_tokens > 100);
}
