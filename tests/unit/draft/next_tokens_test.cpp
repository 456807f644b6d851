// The trained hybrid with its own block that predicts further tokens: the same text with and without, and fewer steps.
#include <catch2/catch.hpp>

#include "core/grammar/compiler.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

const char* const kQuestions[] = {"What is continuous batching, and why is it useful?", "Hello! Who are you?",
                                  "What is a KV cache?", "Why is prefill slower for long prompts?",
                                  "Tell me about paged attention."};

// Fixed prices decide how much is drafted, not this machine's, so that it is the same in each run.
constexpr StepPrice kPrice{.fixed = 0.01, .stream = 0.0005, .prompt_token = 0.0001};

std::filesystem::path trained_hybrid() {
  return source_folder() / "deploy/demo-model/families/quire-hybrid.gguf";
}

EngineOptions drafting(SpeculationMethod method, std::int32_t max_tokens = 4) {
  EngineOptions options;
  options.scheduler.max_num_seqs = 8;
  options.num_states = 24;
  options.speculation = {method, max_tokens};
  return options;
}

Request question(const ServedModel& served, int i, int num_tokens = 80) {
  const std::string text =
      std::string("<|im_start|>user\n") + kQuestions[i % 5] + "<|im_end|>\n<|im_start|>assistant\n";
  return request_of(served.loaded->tokenizer()->encode(text, true, true), num_tokens);
}

std::shared_ptr<const Grammar> grammar_of(const ServedModel& served, const std::string& regex) {
  GrammarCompiler compiler(std::make_shared<TokenVocabulary>(*served.loaded->tokenizer()), GrammarLimits{});
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kRegex;
  spec.text = regex;
  auto compiled = compiler.compile(spec);
  REQUIRE(compiled);
  return *compiled;
}

// Requests of every kind that drafting could affect.
Request request_number(const ServedModel& served, int i) {
  Request request = question(served, i, 40 + 7 * (i % 6));
  SamplingParams& sampling = request.sampling;
  sampling.seed = static_cast<std::uint64_t>(i);
  sampling.temperature = i % 3 == 0 ? 0.0F : 0.7F;
  if (i % 2 == 0) sampling.num_logprobs = 2;
  if (i % 4 == 1) sampling.repetition_penalty = 1.2F;
  if (i % 4 == 3) sampling.frequency_penalty = 0.4F;
  if (i % 5 == 4) sampling.stop_token_ids = served.loaded->tokenizer()->encode(" the", false, false);
  if (i % 5 == 2) request.num_choices = 3;
  if (i % 7 == 3) request.grammar = grammar_of(served, "((one|two|three) (and|or) ){30}");
  return request;
}

struct Texts {
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  EngineStats stats;
};

Texts texts_of(SpeculationMethod method, std::int64_t num_blocks, EngineOptions options, int num_requests,
               const std::filesystem::path& path = trained_hybrid()) {
  options.speculation.method = method;
  ServedModel served(path, num_blocks, options, kPrice);
  Texts texts;
  for (int i = 0; i < num_requests; ++i)
    texts.sinks.push_back(served.submit(request_number(served, i)));
  served.run();
  texts.stats = served.engine->stats();
  return texts;
}

void check_same(const Texts& got, const Texts& expected) {
  for (std::size_t i = 0; i < expected.sinks.size(); ++i) {
    INFO("request " << i);
    for (std::size_t choice = 0; choice < expected.sinks[i]->choices.size(); ++choice) {
      const ChoiceOutput& with = got.sinks[i]->choices[choice];
      const ChoiceOutput& without = expected.sinks[i]->choices[choice];
      CHECK(with.tokens == without.tokens);
      REQUIRE(with.logprobs.size() == without.logprobs.size());
      for (std::size_t k = 0; k < with.logprobs.size(); ++k) {
        CHECK(with.logprobs[k].logprob == without.logprobs[k].logprob);
        CHECK(with.logprobs[k].top == without.logprobs[k].top);
      }
    }
  }
}

}  // namespace

TEST_CASE("the model's own drafts change no bit, whatever is asked and however little room there is",
          "[engine][model][state][draft]") {
  const int num_requests = 24;
  EngineOptions options = drafting(SpeculationMethod::kNextTokens);
  options.kv_cache.dtype = GENERATE(KvDType::kF16, KvDType::kI4);
  const Texts plain = texts_of(SpeculationMethod::kNone, 400, options, num_requests);
  CHECK(plain.stats.num_drafts == 0);
  const Texts roomy = texts_of(SpeculationMethod::kNextTokens, 400, options, num_requests);
  check_same(roomy, plain);
  options.scheduler.max_num_batched_tokens = 24;  // prompts are cut
  options.num_states = 10;
  options.kv_cache.host_tier_bytes = 1 << 22;
  options.scheduler.preemption = Preemption::kSwap;
  const Texts cramped = texts_of(SpeculationMethod::kNextTokens, 26, options, num_requests);
  check_same(cramped, plain);
  CHECK(cramped.stats.num_preemptions > 0);
  CHECK(cramped.stats.num_blocks_used == 0);
  CHECK(roomy.stats.num_accepted_tokens > 100);
  CHECK(cramped.stats.num_accepted_tokens > 0);
}

TEST_CASE("the drafts of a block of random weights change no bit either", "[engine][model][state][draft]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "hybrid.gguf";
  SynthSpec spec = *find_synth_shape("tiny-qwen35");
  spec.types = *find_synth_types("Q8_0");
  add_next_tokens(spec);
  write_synthetic_gguf(spec, path, {});
  const EngineOptions options = drafting(SpeculationMethod::kNextTokens);
  const Texts plain = texts_of(SpeculationMethod::kNone, 400, options, 12, path);
  const Texts drafted = texts_of(SpeculationMethod::kNextTokens, 400, options, 12, path);
  check_same(drafted, plain);
  CHECK(drafted.stats.num_draft_tokens > 0);

  SynthSpec other = *find_synth_shape("tiny-gemma3");
  other.types = spec.types;
  add_next_tokens(other);
  CHECK_THROWS_AS(write_synthetic_gguf(other, folder.path() / "other.gguf", {}), StartupError);
}

TEST_CASE("the model's own drafts are mostly right where it was trained", "[engine][model][state][draft]") {
  ServedModel served(trained_hybrid(), 200, drafting(SpeculationMethod::kNextTokens, 2), kPrice);
  for (int i = 0; i < 5; ++i)
    served.submit(question(served, i));
  served.run();
  const EngineStats stats = served.engine->stats();
  INFO(stats.num_accepted_tokens << " of " << stats.num_draft_tokens);
  CHECK(stats.num_accepted_tokens * 2 > stats.num_draft_tokens);
}

TEST_CASE("what the block keeps is the same however prompts are cut, cached and continued",
          "[engine][model][state][draft]") {
  // Drafts depend on the block's kept state: as many are right in a conversation's next turn from the cache.
  const auto accepted = [](bool caches, std::int32_t batched) {
    EngineOptions options = drafting(SpeculationMethod::kNextTokens, 1);
    options.kv_cache.enable_prefix_caching = caches;
    options.scheduler.max_num_batched_tokens = batched;
    ServedModel served(trained_hybrid(), 200, options, kPrice);
    Request first = question(served, 0, 48);
    std::vector<TokenId> history = first.prompt;
    const auto sink = served.submit(std::move(first));
    served.run();
    history = joined(joined(history, sink->choices[0].tokens), question(served, 2).prompt);
    const EngineStats before = served.engine->stats();
    const auto next = served.submit(request_of(history, 32));
    served.run();
    CHECK((next->choices[0].finishes.at(0).num_cached_tokens > 0) == caches);
    return served.engine->stats().num_accepted_tokens - before.num_accepted_tokens;
  };
  const auto whole = accepted(false, 512);
  CHECK(whole > 0);
  CHECK(accepted(false, 17) == whole);
  CHECK(accepted(true, 512) == whole);
}
