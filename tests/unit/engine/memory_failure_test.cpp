// Memory that runs out at any one place of the engine's step: the requests that needed it end with that error, the
// others generate the same text as alone, and the engine continues.
#include <catch2/catch.hpp>
#include <thread>

#include "core/base/json/json.h"
#include "core/grammar/compiler.h"
#include "core/grammar/mask/vocabulary.h"
#include "core/model/formats/read_tokenizer.h"
#include "core/text/chat_template.h"
#include "tests/unit/engine/allocations.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/kv/tier_folders.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

std::shared_ptr<const Grammar> compiled(GrammarSpec::Kind kind, const char* text) {
  const GrammarCompiler compiler(std::make_shared<TokenVocabulary>(TokenVocabulary::bytes_only()));
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = text;
  return *compiler.compile(spec);
}

// Takes no memory in send(): it never fails.
class ReservedSink final : public OutputSink {
 public:
  explicit ReservedSink(std::int32_t num_choices) : choices(static_cast<std::size_t>(num_choices)) {
    for (Choice& choice : choices)
      choice.tokens.reserve(1000);
  }
  void send(OutputEvent event) noexcept override {
    Choice& choice = choices[static_cast<std::size_t>(event.choice)];
    for (const TokenId token : event.tokens)
      choice.tokens.push_back(token);
    if (!event.finish) return;
    ++choice.num_finishes;
    choice.error = event.finish->error;
  }

  struct Choice {
    std::vector<TokenId> tokens;
    int num_finishes = 0;
    SharedError error;
  };
  std::vector<Choice> choices;
};

struct MemoryScene {
  explicit MemoryScene(SchedulerPolicy policy) : harness(options(policy)) {
    harness.model.sequences_a_step.reserve(10'000);
  }
  static HarnessOptions options(SchedulerPolicy policy) {
    HarnessOptions options{.num_blocks = 60, .vocab = 257, .eos = {TokenId{256}}};
    options.engine.scheduler.policy = policy;
    options.engine.scheduler.preemption = Preemption::kSwap;
    options.engine.kv_cache.host_tier_bytes = 1 << 14;
    options.engine.scheduler.max_num_seqs = 6;
    options.engine.queue.max_queue_time_s = 1000.0;
    options.deferred_seed.reset();  // the tool itself takes memory
    return options;
  }

  void submit(Request request) {
    request.id = std::to_string(sinks.size());
    request.key_name = "a key with a name too long to lie inside of a string " + std::to_string(sinks.size() % 3);
    request.cache_salt = std::string(40, static_cast<char>('a' + sinks.size() % 2));
    request.arrival = harness.now + std::chrono::microseconds(sinks.size());
    sinks.push_back(std::make_shared<ReservedSink>(request.num_choices));
    Submission submission{std::make_shared<const Request>(std::move(request)), sinks.back()};
    const bool is_submitted = harness.engine.queue().submit(std::move(submission)).has_value();
    REQUIRE(is_submitted);
  }
  // Requests that allocate in every possible way, more than the pool has room for.
  void submit_all(const std::shared_ptr<const Grammar>& grammar) {
    Request request = request_of(made_tokens(21, 1, 257), 12);
    submit(request);
    request.grammar = grammar;
    submit(request);
    request.prompt = made_tokens(22, 6, 257);  // both use what the first one prepares
    submit(request);
    request.grammar = nullptr;
    request.num_choices = 3;
    request.sampling.repetition_penalty = 1.2F;
    request.sampling.temperature = 0.7F;
    request.sampling.seed = 5;
    submit(request);
    request = request_of(made_tokens(30, 2, 257), 20);
    request.sampling.num_logprobs = 3;
    request.sampling.num_prompt_logprobs = 2;
    request.deadline = harness.now + std::chrono::hours(1);
    submit(request);
    request = request_of(made_tokens(25, 3, 257), 1);
    request.pooling = Pooling::kMean;
    submit(request);
    request.pooling = Pooling::kLast;
    request.pooled_output = PooledOutput::kTokenLogprobs;
    request.scored_tokens = made_tokens(100, 4, 257);
    submit(request);
    request = request_of(made_tokens(40, 5, 257), 30);
    request.sampling.dry.multiplier = 0.5F;
    submit(request);
    request.deadline = harness.now + std::chrono::milliseconds(9);  // passes before the end
    submit(request);
  }
  // Steps until all requests have ended; each step may fail to get memory.
  void run() {
    for (bool works = true; works; works = harness.step())
      CHECK(harness.engine.healthy());
  }

  Harness harness;
  std::vector<std::shared_ptr<ReservedSink>> sinks;
};

using Kind = GrammarSpec::Kind;

// Fails each allocation in turn.
void check_exhausted(SchedulerPolicy policy, Kind kind, const char* text) {
  MemoryScene whole(policy);
  whole.submit_all(compiled(kind, text));
  whole.run();
  std::int64_t num_errors = 0;
  std::int64_t num_before = 0;
  for (bool has_failed = true; has_failed; ++num_before) {
    INFO("allocation " << num_before);
    MemoryScene scene(policy);
    scene.submit_all(compiled(kind, text));
    fail_next_allocation(num_before);
    scene.run();
    has_failed = !forget_failure();
    REQUIRE(scene.harness.engine.healthy());
    for (std::size_t i = 0; i < scene.sinks.size(); ++i) {
      for (std::size_t choice = 0; choice < scene.sinks[i]->choices.size(); ++choice) {
        INFO("request " << i << " choice " << choice);
        const ReservedSink::Choice& got = scene.sinks[i]->choices[choice];
        const ReservedSink::Choice& expected = whole.sinks[i]->choices[choice];
        REQUIRE(got.num_finishes == 1);
        const bool lacked_memory = got.error != nullptr && got.error->code == "out_of_memory";
        num_errors += lacked_memory ? 1 : 0;
        // The progress of the request whose deadline passes depends on its neighbours.
        const bool is_cut = lacked_memory || expected.error != nullptr;
        const std::size_t num_same = std::min(got.tokens.size(), expected.tokens.size());
        REQUIRE(std::equal(got.tokens.begin(), got.tokens.begin() + static_cast<std::ptrdiff_t>(num_same),
                           expected.tokens.begin()));
        if (!is_cut) REQUIRE(got.tokens.size() == expected.tokens.size());
        if (!lacked_memory) REQUIRE((got.error == nullptr) == (expected.error == nullptr));
      }
    }
    const EngineStats stats = scene.harness.engine.stats();
    REQUIRE(stats.num_blocks_used == 0);
    REQUIRE(stats.num_waiting == 0);
  }
  CHECK(num_before > 100);
  CHECK(num_errors > 100);
}

}  // namespace

TEST_CASE("memory that is exhausted anywhere in a step ends what needed it, and nothing else", "[engine][memory]") {
  SECTION("an array, first come first served") {
    check_exhausted(SchedulerPolicy::kFcfs, Kind::kJsonSchema,
                    R"({"type":"array","items":{"enum":["ab","ac",12]},"minItems":99})");
  }
  SECTION("a regular expression, by priority") {
    check_exhausted(SchedulerPolicy::kPriority, Kind::kRegex, R"((?!cad)([a-d]{3} )*)");
  }
}

TEST_CASE("memory that is exhausted anywhere in a step with other grammars ends what needed it, and nothing else",
          "[engine][memory][.long]") {
  SECTION("an object, in fair shares") {
    check_exhausted(SchedulerPolicy::kFair, Kind::kJsonSchema,
                    R"({"type":"object","properties":{"a":{"enum":[1,2]},"b":{"type":"boolean"}},"minProperties":2,
                        "additionalProperties":{"type":"string"}})");
  }
  SECTION("a grammar with recursion, first come first served") {
    check_exhausted(SchedulerPolicy::kFcfs, Kind::kEbnf,
                    "root ::= w root | w\nw ::= \"(\" w \")\" | [ab] w | [ab] \" \"\n");
  }
}

TEST_CASE("a request whose sampler finds no memory ends alone", "[engine][memory]") {
  HarnessOptions options;
  options.deferred_seed.reset();
  Harness harness(options);
  Request scored = request_of(made_tokens(6, 1), 20);
  scored.sampling.num_logprobs = 5;  // its results need memory
  const auto failing = harness.submit(scored);
  const auto neighbour = harness.submit(request_of(made_tokens(6, 2), 20));
  harness.step();
  harness.backend.around_parallel = [](bool begins) { fail_allocations(begins); };
  harness.step();
  harness.backend.around_parallel = nullptr;
  harness.run();
  REQUIRE(failing->choices[0].finishes.size() == 1);
  REQUIRE(failing->choices[0].finishes[0].error);
  CHECK(failing->choices[0].finishes[0].error->code == "out_of_memory");
  CHECK(failing->choices[0].tokens.size() == 1);
  CHECK(neighbour->choices[0].tokens.size() == 20);
  CHECK(harness.engine.healthy());
}

TEST_CASE("a chat template or a grammar that finds no memory is the error of its request", "[engine][memory]") {
  const auto parsed = ChatTemplate::parse("{{ text }} and more than fits a short string");
  REQUIRE(parsed);
  const Json context = {{"text", "what is said in more words than a short string holds"}};
  fail_next_allocation();
  const auto rendered = parsed->render(context);
  REQUIRE_FALSE(rendered);
  CHECK(rendered.error().code == "out_of_memory");
  CHECK(parsed->render(context));

  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const GrammarCompiler compiler(std::make_shared<TokenVocabulary>(*open_tokenizer(path)));
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kRegex;
  spec.text = "[a-z]+ more than fits a short string";
  fail_next_allocation();
  const auto refused = compiler.compile(spec);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == "out_of_memory");
  CHECK(compiler.compile(spec));
}
