// Requests with and without drafts: the same tokens and logprobs, in fewer steps if the drafts are right.
#include <catch2/catch.hpp>

#include "tests/unit/draft/drafted_runs.h"
#include "tests/unit/engine/allocations.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

// Takes one of several ways, then forces text, again and again.
class VerseGrammar : public Grammar {
 public:
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(); }

 private:
  class State : public GrammarState {
   public:
    void assign(const GrammarState& other) override { *this = static_cast<const State&>(other); }
    void fill_mask(std::span<std::uint32_t> mask) override {
      std::fill(mask.begin(), mask.end(), 0U);
      for (int token = 0; token < 60; ++token) {
        if (allows(TokenId{token})) mask[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
      }
    }
    bool accept(TokenId token) override {
      if (!allows(token)) return false;
      ++position_;
      return true;
    }
    bool finished() const override { return false; }
    std::span<const TokenId> forced_tokens() override {
      return std::span(kForced).subspan(static_cast<std::size_t>(position_ % 4 == 2 ? 0 : 2));
    }

   private:
    // Two of a few, then the two that are forced.
    bool allows(TokenId token) const {
      const int at = position_ % 4;
      return at < 2 ? token.value % 3 == at : token == kForced[static_cast<std::size_t>(at - 2)];
    }
    static constexpr std::array<TokenId, 2> kForced{TokenId{50}, TokenId{51}};
    int position_ = 0;
  };
};

class DroppingSink final : public OutputSink {
 public:
  void send(OutputEvent event) noexcept override { num_tokens += event.tokens.size(); }
  std::size_t num_tokens = 0;
};

}  // namespace

TEST_CASE("right drafts save steps, wrong ones change nothing", "[engine][draft]") {
  Request request = named(request_of(made_tokens(9, 1), 200));
  request.sampling.temperature = 1.0F;
  request.sampling.seed = 5;
  request.sampling.num_logprobs = 2;
  request.sampling.repetition_penalty = 1.2F;
  request.sampling.frequency_penalty = 0.3F;
  const KnownTexts texts = texts_of(request);
  const Run without = run_of(one_in_flight(), request);
  CHECK(without.stats.num_draft_tokens == 0);
  for (const std::uint32_t percent : {0U, 70U, 100U}) {
    const Run with = run_of(drafted(texts, percent), request);
    CHECK(with.choices[0].tokens == without.choices[0].tokens);
    REQUIRE(with.choices[0].logprobs.size() == 200);
    for (std::size_t i = 0; i < 200; ++i) {
      CHECK(with.choices[0].logprobs[i].logprob == without.choices[0].logprobs[i].logprob);
      CHECK(with.choices[0].logprobs[i].top == without.choices[0].logprobs[i].top);
    }
    CHECK(with.stats.generation_tokens == 200);
    CHECK(with.stats.num_accepted_tokens <= with.stats.num_draft_tokens);
    if (percent == 0) CHECK(with.stats.num_accepted_tokens == 0);
    if (percent == 0) CHECK(with.stats.num_draft_tokens < 40);
    if (percent == 100) CHECK(with.stats.num_accepted_tokens == with.stats.num_draft_tokens);
    CHECK(with.num_steps == without.num_steps - static_cast<int>(with.stats.num_accepted_tokens));
    std::uint64_t num_accepted = 0;
    for (const std::uint64_t count : with.stats.accepted_by_position)
      num_accepted += count;
    CHECK(num_accepted == with.stats.num_accepted_tokens);
  }
}

TEST_CASE("drafts that are never right cost no step and next to no row, alone and among many", "[engine][draft]") {
  const int num_streams = GENERATE(1, 8, 32);
  CAPTURE(num_streams);
  struct Counted {
    double seconds = 0.0;  // priced by the steps' rows
    std::int64_t num_steps = 0;
  };
  const auto counted = [&](std::optional<std::uint32_t> percent, KnownTexts& texts) {
    HarnessOptions options = percent ? drafted(texts, *percent) : one_in_flight();
    options.num_blocks = 4000;
    options.engine.scheduler.max_num_seqs = 32;
    Counted out;
    options.on_submit = [&](const StepPlan& plan, const StepArrays&) {
      out.seconds += options.price->seconds(plan.terms);
      ++out.num_steps;
    };
    Harness harness(options);
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (int i = 0; i < num_streams; ++i) {
      Request request = request_of(made_tokens(9, i), 400);
      request.id = std::to_string(i);
      request.sampling.temperature = 1.0F;
      request.sampling.seed = 5;
      sinks.push_back(harness.submit(request));
    }
    harness.run();
    CHECK(harness.engine.stats().num_accepted_tokens == 0);
    CHECK((harness.engine.stats().num_draft_tokens > 0) == percent.has_value());
    for (int i = 0; i < num_streams; ++i)
      texts[{std::to_string(i), 0}] = sinks[static_cast<std::size_t>(i)]->choices[0].tokens;
    return out;
  };
  KnownTexts texts;
  const Counted without = counted(std::nullopt, texts);
  KnownTexts again = texts;
  const Counted with = counted(0U, again);
  CHECK(again == texts);
  CHECK(with.num_steps == without.num_steps);
  CHECK(with.seconds * 0.97 <= without.seconds);
}

TEST_CASE("drafts change no text of samplers in a row, and those that follow the draws are not drafted",
          "[engine][draft]") {
  Request request = named(request_of(made_tokens(9, 1), 120));
  request.sampling.temperature = 1.0F;
  request.sampling.seed = 5;
  const auto check = [&](const std::function<void(SamplingParams&)>& set, bool is_drafted) {
    Request asked = request;
    set(asked.sampling);
    const KnownTexts texts = texts_of(asked);
    CHECK(texts.begin()->second != texts_of(request).begin()->second);
    for (const std::uint32_t percent : {0U, 70U, 100U}) {
      const Run with = run_of(drafted(texts, percent), asked);
      CHECK(with.choices[0].tokens == texts.begin()->second);
      CHECK((with.stats.num_draft_tokens > 0) == is_drafted);
    }
  };
  check([](SamplingParams& sampling) { sampling.top_n_sigma = 0.7F; }, true);
  check([](SamplingParams& sampling) { sampling.top_a = 0.9F; }, true);
  check(
      [](SamplingParams& sampling) {
        sampling.min_keep = 3;
        sampling.top_p = 0.05F;
      },
      true);
  check([](SamplingParams& sampling) { sampling.dynatemp_range = 0.8F; }, true);
  check(
      [](SamplingParams& sampling) {
        sampling.order = {{SamplerStep::kTopK, SamplerStep::kPenalties}};
        sampling.top_k = 3;
        sampling.repetition_penalty = 1.3F;
      },
      true);
  check([](SamplingParams& sampling) { sampling.mirostat = {.version = 1, .tau = 2.0F}; }, false);
  check([](SamplingParams& sampling) { sampling.mirostat = {.version = 2, .tau = 2.0F}; }, false);
  check([](SamplingParams& sampling) { sampling.adaptive.target = 0.1F; }, false);
}

TEST_CASE("prompt lookup saves steps where the text repeats itself", "[engine][draft]") {
  // Only these tokens are allowed, and the penalty makes the text cycle.
  Request request = named(request_of(tokens_of({1, 2, 3, 4, 5, 6, 1, 2, 3}), 120));
  request.sampling.allowed_token_ids = tokens_of({1});
  HarnessOptions options = one_in_flight();
  const Run without = run_of(options, request);
  options.engine.speculation.method = SpeculationMethod::kPromptLookup;
  const Run with = run_of(options, request);
  CHECK(with.choices[0].tokens == without.choices[0].tokens);
  CHECK(with.stats.num_accepted_tokens > 60);
  CHECK(with.num_steps < without.num_steps / 2);
}

TEST_CASE("a request decides about its drafts", "[engine][draft]") {
  Request request = named(request_of(made_tokens(9, 1), 60));
  const KnownTexts texts = texts_of(request);
  request.speculation = {SpeculationMethod::kNone};
  CHECK(run_of(drafted(texts, 100), request).stats.num_drafts == 0);
  request.speculation = {SpeculationMethod::kPromptLookup, 2};
  HarnessOptions off = drafted(texts, 100);
  off.engine.speculation.method = SpeculationMethod::kNone;
  const Run asked = run_of(off, request);
  CHECK(asked.stats.num_draft_tokens > 0);
  CHECK(asked.stats.num_draft_tokens <= 2 * asked.stats.num_drafts);
}

TEST_CASE("what a grammar forces between drafts is not drawn", "[engine][draft]") {
  Request request = named(request_of(made_tokens(9, 1), 61));
  request.sampling.temperature = 0.9F;
  request.sampling.seed = 3;
  request.grammar = std::make_shared<VerseGrammar>();
  if (GENERATE(false, true)) request.sampling.num_logprobs = 1;
  const KnownTexts texts = texts_of(request);
  const Run without = run_of(one_in_flight(), request);
  const Run with = run_of(drafted(texts, 100), request);
  CHECK(with.choices[0].tokens == without.choices[0].tokens);
  CHECK(with.choices[0].logprobs.size() == without.choices[0].logprobs.size());
  CHECK(with.stats.num_accepted_tokens > 20);
  CHECK(with.num_steps < without.num_steps);
  // Forbidden drafts are never verified.
  const Run wrong = run_of(drafted(texts, 0), request);
  CHECK(wrong.choices[0].tokens == without.choices[0].tokens);
}

TEST_CASE("a draft that would end the generation is not computed", "[engine][draft]") {
  Request request = named(request_of(made_tokens(9, 1), 100));
  const Run without = run_of(one_in_flight(), request);
  const KnownTexts texts = texts_of(request);
  // A token in the middle of the text ends it.
  request.sampling.stop_token_ids = {without.choices[0].tokens[40]};
  const Run stopped = run_of(one_in_flight(), request);
  const Run with = run_of(drafted(texts, 100), request);
  CHECK(with.choices[0].tokens == stopped.choices[0].tokens);
  REQUIRE(with.choices[0].finishes.size() == 1);
  CHECK(with.choices[0].finishes[0].stop_token == stopped.choices[0].finishes[0].stop_token);
  CHECK(with.choices[0].finishes[0].num_generated_tokens == stopped.choices[0].finishes[0].num_generated_tokens);
  CHECK(with.stats.num_accepted_tokens == with.stats.num_draft_tokens);
}

TEST_CASE("a drafter without memory is dropped, and its request continues", "[engine][draft]") {
  class Failing final : public Drafter {
   public:
    DraftStrength propose(std::span<const TokenId>, std::size_t, std::int64_t&, std::vector<TokenId>&) override {
      throw std::bad_alloc();
    }
  };
  HarnessOptions options = one_in_flight();
  options.engine.speculation.method = SpeculationMethod::kPromptLookup;
  int num_made = 0;
  options.engine.make_drafter = [&](const Request&, std::int32_t) {
    ++num_made;
    return std::make_unique<Failing>();
  };
  const Request request = named(request_of(made_tokens(9, 1), 30));
  const Run with = run_of(options, request);
  CHECK(num_made == 1);
  CHECK(with.choices[0].tokens == run_of(one_in_flight(), request).choices[0].tokens);
  CHECK_FALSE(with.choices[0].finishes[0].error);
}

TEST_CASE("a device that fails while drafts are verified ends the request as ever", "[engine][draft]") {
  Request request = named(request_of(made_tokens(9, 1), 60));
  const KnownTexts texts = texts_of(request);
  Harness harness(drafted(texts, 100));
  const auto sink = harness.submit(request);
  while (harness.engine.stats().num_accepted_tokens < 4)
    harness.step();
  harness.model.fail_after_rows = harness.model.num_rows;
  harness.run();
  REQUIRE(sink->choices[0].finishes.size() == 1);
  REQUIRE(sink->choices[0].finishes[0].error);
  CHECK(sink->choices[0].finishes[0].error->code == "device_failed");
  CHECK(std::equal(sink->choices[0].tokens.begin(), sink->choices[0].tokens.end(), texts.begin()->second.begin()));
}

TEST_CASE("the model's own drafts are looked for among the tokens that its texts use", "[engine][draft]") {
  HarnessOptions options = one_in_flight();
  options.vocab = 32768;
  options.right_drafts_percent = 70;
  options.engine.speculation = {SpeculationMethod::kNextTokens, 2};
  options.num_blocks = 1000;
  Harness harness(options);
  harness.submit(request_of(made_tokens(9, 1), 20));
  harness.run();
  CHECK(harness.model.num_looked_at == 32768);  // too little was said to tell
  harness.submit(request_of(made_tokens(2000, 2), 20));
  harness.run();
  CHECK(harness.model.num_looked_at == 256);  // the prompt's
}

TEST_CASE("a device that cannot compute a model's drafts refuses the model", "[engine][draft]") {
  class Draftless final : public Executor {
   public:
    explicit Draftless(std::unique_ptr<Executor> executor) : executor_(std::move(executor)) {}
    std::int64_t depth() const override { return 1; }
    Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override { return executor_->submit(plan, arrays); }
    const Model& model() const override { return executor_->model(); }
    KvStorage& storage() override { return executor_->storage(); }
    KvStorage* window_storage() override { return nullptr; }
    StateStorage* states() override { return nullptr; }
    std::string name() const override { return "device"; }

   private:
    std::unique_ptr<Executor> executor_;
  };
  const auto engine_with = [](int right_drafts_percent) {
    FakeBackend backend;
    FakeModel model(64, 1000, 0, right_drafts_percent, DraftsBy::kModel);
    EngineOptions options;
    auto storage =
        backend.allocate_kv({.num_layers = 1, .num_blocks = 8, .block_size = 4, .num_kv_heads = 1, .head_dim = 1});
    auto executor = make_executor(model, backend, std::move(storage), options, std::nullopt);
    const Engine engine(std::make_unique<Draftless>(std::move(executor)), {}, options);
  };
  CHECK_NOTHROW(engine_with(-1));
  CHECK_THROWS_WITH(engine_with(100),
                    "device does not compute a model's drafts: set speculation.method to "
                    "prompt_lookup or none, and no speculation.draft_model");
}

TEST_CASE("a step with drafts, without arrivals and ends, allocates nothing", "[engine][draft][steady]") {
  HarnessOptions options = one_in_flight();
  options.num_blocks = 4000;
  options.engine.scheduler.max_num_seqs = 8;
  options.engine.speculation.method = SpeculationMethod::kPromptLookup;
  KnownTexts texts;
  const int drafts_by = GENERATE(0, 1, 2);
  const bool by_oracle = drafts_by == 1;
  const bool by_model = drafts_by == 2;
  if (by_model) {
    options.engine.speculation.method = SpeculationMethod::kDraftModel;
    options.drafts_by = DraftsBy::kModel;
    options.right_drafts_percent = 70;
    options.price = {.fixed = 0.01, .stream = 0.0005, .prompt_token = 0.0001};
  }
  const auto grammar = std::make_shared<VerseGrammar>();
  const auto request_number = [&](int i) {
    Request request = request_of(made_tokens(10 + i, i, 60), 3000);
    request.id = std::to_string(i);
    request.sampling.temperature = 0.8F;
    request.sampling.seed = 7;
    if (i % 4 == 1) request.sampling.repetition_penalty = 1.1F;
    if (i % 4 == 2) request.sampling.dry.multiplier = 0.5F;
    if (i % 4 == 3) request.grammar = grammar;
    if (!by_oracle && !by_model) request.sampling.allowed_token_ids = tokens_of({1, 2, 50, 51, 30});
    return request;
  };
  for (int i = 0; by_oracle && i < 4; ++i)
    texts.merge(texts_of(request_number(i)));
  if (by_oracle) options.engine.make_drafter = OracleDrafter::factory(texts, 90, 60);
  Harness harness(options);
  harness.model.sequences_a_step.reserve(10'000);
  std::vector<std::shared_ptr<DroppingSink>> sinks;
  for (int i = 0; i < 4; ++i) {
    sinks.push_back(std::make_shared<DroppingSink>());
    REQUIRE(harness.engine.queue().submit({std::make_shared<const Request>(request_number(i)), sinks.back()}));
  }
  for (int i = 0; i < 150; ++i)
    harness.step();
  const std::uint64_t verified_before = harness.engine.stats().num_draft_tokens;
  const std::int64_t before = num_allocations();
  for (int i = 0; i < 150; ++i)
    harness.step();
  CHECK(num_allocations() == before);
  CHECK(harness.engine.stats().num_running == 4);
  CHECK(harness.engine.stats().num_draft_tokens > verified_before);
}

TEST_CASE("a real model's bits do not depend on drafts", "[engine][draft][model]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const auto run = [&](const EngineOptions& options) {
    ServedModel served(path, 200, options, one_in_flight().price);
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (int i = 0; i < 6; ++i) {
      Request request = request_of(made_tokens(20 + 3 * i, i, 500), 150);
      request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
      request.sampling.seed = 11;
      request.sampling.num_logprobs = 3;
      if (i == 3) request.num_choices = 3;
      if (i == 4) request.sampling.frequency_penalty = 0.4F;
      sinks.push_back(served.submit(std::move(request)));
    }
    served.run();
    std::vector<ChoiceOutput> outputs;
    for (const auto& sink : sinks)
      outputs.insert(outputs.end(), sink->choices.begin(), sink->choices.end());
    return std::pair(std::move(outputs), served.engine->stats());
  };
  EngineOptions options;
  const auto [without, none] = run(options);
  CHECK(none.num_drafts == 0);
  KnownTexts texts;
  std::size_t at = 0;
  for (int i = 0; i < 6; ++i) {
    for (int choice = 0; choice < (i == 3 ? 3 : 1); ++choice)
      texts[{std::to_string(i), choice}] = without[at++].tokens;
  }
  options.speculation.method = SpeculationMethod::kPromptLookup;
  const bool by_oracle = GENERATE(true, false);  // or by prompt lookup
  if (by_oracle) options.make_drafter = OracleDrafter::factory(texts, 70, 500);
  const auto [with, stats] = run(options);
  REQUIRE(with.size() == without.size());
  for (std::size_t i = 0; i < with.size(); ++i) {
    CHECK(with[i].tokens == without[i].tokens);
    REQUIRE(with[i].logprobs.size() == without[i].logprobs.size());
    for (std::size_t k = 0; k < with[i].logprobs.size(); ++k) {
      CHECK(with[i].logprobs[k].logprob == without[i].logprobs[k].logprob);
      CHECK(with[i].logprobs[k].top == without[i].logprobs[k].top);
    }
  }
  if (by_oracle) CHECK(stats.num_accepted_tokens > 0);
}
