// Random requests of every kind, with adapters and without, in engines of every size, submitted and aborted at random:
// each must give the text that it gives alone. QUIRE_PROPERTY_LIVES sets the number of engines, QUIRE_PROPERTY_SEED the
// first one's seed; a failure prints its seed.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "core/model/parts/adapter.h"
#include "tests/support/oracle_drafter.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr int kWideVocab = 64;
constexpr TokenId kEnd{63};

std::uint32_t mixed(std::uint32_t a, std::uint32_t b) {
  std::uint32_t x = a * 2654435761U ^ (b + 0x9E3779B9U + (a << 6));
  x ^= x >> 15;
  x *= 0x85EBCA6BU;
  return x ^ (x >> 13);
}

// The allowed tokens depend on the text so far; every seventh token begins a forced run, of the length that a grammar
// of JSON forces, or longer than a stream computes in a step.
class MazeGrammar : public Grammar {
 public:
  MazeGrammar(std::uint32_t salt, int length) : salt_(salt), length_(length) {}
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(*this); }

 private:
  class State : public GrammarState {
   public:
    explicit State(const MazeGrammar& maze) : maze_(maze) {}
    void assign(const GrammarState& other) override {
      const auto& from = static_cast<const State&>(other);
      path_ = from.path_;
      num_forced_ = from.num_forced_;
      num_accepted_ = from.num_accepted_;
    }
    void fill_mask(std::span<std::uint32_t> mask) override {
      std::fill(mask.begin(), mask.end(), 0U);
      for (std::uint32_t token = 0; token < kWideVocab; ++token) {
        if (allows(TokenId{static_cast<int>(token)})) mask[token / 32] |= 1U << (token % 32);
      }
    }
    bool accept(TokenId token) override {
      if (!allows(token)) return false;
      path_ = mixed(path_, static_cast<std::uint32_t>(token.value));
      if (++num_accepted_; num_forced_ > 0) --num_forced_;
      if (num_accepted_ % 7 == 3 && num_forced_ == 0) num_forced_ = path_ % 5 == 0 ? 40 : 1 + path_ % 3;
      return true;
    }
    bool finished() const override { return num_accepted_ >= maze_.length_; }
    std::span<const TokenId> forced_tokens() override {
      tokens_.clear();
      std::uint32_t path = path_;
      for (std::uint32_t i = 0; i < num_forced_ && num_accepted_ + static_cast<int>(i) < maze_.length_; ++i) {
        tokens_.push_back(forced_after(path));
        path = mixed(path, static_cast<std::uint32_t>(tokens_.back().value));
      }
      return tokens_;
    }

   private:
    static TokenId forced_after(std::uint32_t path) { return TokenId{static_cast<int>(path % 62)}; }
    // Forced text may be spelled in other tokens too, as in a grammar over text.
    bool allows(TokenId token) const {
      if (finished()) return token == kEnd;
      if (token == kEnd) return num_forced_ == 0 && num_accepted_ % 5 == 4;
      if (num_forced_ > 0) return token == forced_after(path_) || token.value % 16 == static_cast<int>(path_ % 16);
      return mixed(maze_.salt_ ^ path_, static_cast<std::uint32_t>(token.value)) % 3 != 0;
    }
    const MazeGrammar& maze_;
    std::uint32_t path_ = 1;
    std::uint32_t num_forced_ = 0;  // tokens of the run that are left
    int num_accepted_ = 0;
    std::vector<TokenId> tokens_;
  };
  std::uint32_t salt_;
  int length_;
};

class Life {
 public:
  explicit Life(std::uint32_t seed) : random_(seed), options_(random_options()), harness_(options_) {}

  void live() {
    const int num_requests = 12 + below(20);
    while (std::cmp_less(served_.size(), num_requests) || !all_finished()) {
      if (std::cmp_less(served_.size(), num_requests) && one_in(3)) submit();
      if (!served_.empty() && one_in(25)) abort_one();
      if (!harness_.step() && std::cmp_equal(served_.size(), num_requests) && !all_finished())
        FAIL("requests are left that never end");
    }
    for (const Served& each : served_)
      compare(each);
    if (harness_.model.num_wrong_rows != 0) FAIL("a drafting model read rows that it had not computed");
    if (harness_.engine.stats().num_blocks_used != 0) FAIL("blocks are held without a holder");
    if (harness_.engine.stats().num_parts_used != 0) FAIL("parts are held without a holder");
    // A step in flight keeps its blocks. Afterwards each step may move a share of the blocks, but not for ever.
    for (int num_steps = 0; harness_.step(); ++num_steps)
      if (num_steps == 1000) FAIL("an engine with nothing to do never comes to rest");
    for (const auto& adapter : adapters_)
      if (!adapter.expired()) FAIL("an adapter is held by a request that ended");
  }

  EngineStats stats() const { return harness_.engine.stats(); }
  int num_errors() const { return num_errors_; }
  std::int64_t num_model_rounds() const {
    return options_.drafts_by == DraftsBy::kModel ? harness_.model.num_rounds : 0;
  }

 private:
  struct Served {
    Request request;
    std::shared_ptr<KeepingSink> alone;  // its output alone and without drafts
    std::shared_ptr<KeepingSink> sink;
    std::vector<bool> may_be_cut;  // by choice: an abort was asked for
  };

  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint32_t>(bound)); }
  bool one_in(int n) { return below(n) == 0; }
  TokenId token() { return TokenId{below(62)}; }

  HarnessOptions random_options() {
    HarnessOptions options{.num_blocks = 30 + below(40), .block_size = 4, .vocab = kWideVocab, .eos = {kEnd}};
    EngineOptions& engine = options.engine;
    engine.scheduler.max_num_seqs = 4 + below(6);
    engine.scheduler.max_num_batched_tokens = one_in(2) ? 5 + below(12) : 64;
    engine.scheduler.policy = static_cast<SchedulerPolicy>(below(3));
    engine.scheduler.preemption = static_cast<Preemption>(below(3));
    engine.scheduler.prefix_aware = one_in(2);
    engine.kv_cache.enable_prefix_caching = !one_in(4);
    engine.kv_cache.host_tier_bytes = one_in(2) ? 0 : 500 << below(8);
    engine.kv_cache.isolate_by_key = one_in(4);
    if (one_in(2)) options.deferred_seed = random_();
    if (one_in(3)) options.interrupt_seed = random_();
    if (one_in(2)) {
      options.window = 1 + below(30);
      engine.num_window_parts =
          std::min(options.num_blocks, WindowPool::least_parts(options.window, options.block_size) + below(12));
    }
    if (!one_in(3)) {
      engine.speculation = {SpeculationMethod::kPromptLookup, 1 + below(12)};
      // Fixed prices decide how much is verified, not this machine's, so that it is the same in each run.
      options.price = {.fixed = 0.01, .stream = 0.0001 * (1 + below(20)), .prompt_token = 0.0001};
      constexpr std::array<std::uint32_t, 3> kPercents = {0, 70, 100};
      if (one_in(3)) {
        engine.speculation.method = one_in(2) ? SpeculationMethod::kNextTokens : SpeculationMethod::kDraftModel;
        if (engine.speculation.method == SpeculationMethod::kDraftModel) options.drafts_by = DraftsBy::kModel;
        options.right_drafts_percent = static_cast<int>(kPercents[random_() % 3]);
      } else if (!one_in(4)) {
        engine.make_drafter = OracleDrafter::factory(texts_, kPercents[random_() % 3], 62);
      }
    }
    return options;
  }

  void read_sampling(SamplingParams& sampling) {
    sampling.max_tokens = one_in(12) ? 0 : 1 + below(50);
    sampling.temperature = one_in(3) ? 0.0F : 0.3F + 0.2F * static_cast<float>(below(8));
    sampling.seed = static_cast<std::uint64_t>(below(5));
    sampling.ignore_eos = one_in(2);
    if (one_in(4)) sampling.top_k = 1 + below(20);
    if (one_in(4)) sampling.top_p = 0.7F;
    if (one_in(6)) sampling.min_p = 0.05F;
    if (one_in(8)) sampling.typical_p = 0.8F;
    if (one_in(8)) sampling.xtc_probability = 0.5F;
    if (one_in(8)) sampling.top_n_sigma = 1.0F;
    if (one_in(8)) sampling.top_a = 0.3F;
    if (one_in(8)) sampling.min_keep = 2 + below(4);
    if (one_in(8)) sampling.dynatemp_range = 0.5F;
    if (one_in(8)) sampling.mirostat = {.version = 1 + below(2), .tau = 3.0F, .eta = 0.2F};
    if (one_in(8)) sampling.adaptive.target = 0.2F;
    if (one_in(8)) sampling.order = {{SamplerStep::kTopP, SamplerStep::kTemperature, SamplerStep::kPenalties}};
    if (one_in(6)) sampling.repetition_penalty = 1.3F;
    if (one_in(6)) sampling.frequency_penalty = 0.7F;
    if (one_in(8)) sampling.dry.multiplier = 1.0F;
    if (one_in(4)) sampling.num_logprobs = below(4);
    if (one_in(5)) sampling.num_prompt_logprobs = below(4);
    if (one_in(5)) sampling.min_tokens = below(sampling.max_tokens + 1);
    if (one_in(4)) sampling.stop_token_ids = {token(), token()};
    if (one_in(6)) sampling.bad_words = {{token()}, {token(), token()}};
    if (one_in(6)) sampling.logit_bias = {{token(), 3.0F}, {token(), -100.0F}};
    if (one_in(10)) {
      for (int i = 0; i < 40; ++i)
        sampling.allowed_token_ids.push_back(token());
    }
  }

  Request random_request() {
    Request request;
    request.prompt = made_tokens(1 + below(45), below(3), 62);  // few beginnings, so that many are shared
    if (one_in(2)) request.prompt.back() = token();
    read_sampling(request.sampling);
    if (one_in(4)) request.num_choices = 1 + below(4);
    if (one_in(3)) request.grammar = std::make_shared<MazeGrammar>(static_cast<std::uint32_t>(below(4)), 1 + below(60));
    if (one_in(8)) {
      request = request_of(std::move(request.prompt), 0);
      request.pooling = static_cast<Pooling>(1 + below(3));
    }
    request.priority = below(3);
    request.is_background = one_in(3);
    request.key_name = std::string(1, static_cast<char>('a' + below(3)));
    request.cache_salt = one_in(5) ? "salt" : "";
    if (one_in(2)) request.adapter = made_adapter(below(3));
    return request;
  }

  // Each request has its own adapter in memory, of a content that its number decides, which ends with the request.
  std::shared_ptr<const Adapter> made_adapter(int number) {
    auto adapter = std::make_shared<const Adapter>(std::vector<Adapter::Layer>(), Adapter::Group(),
                                                   "an adapter with the hash " + std::to_string(number));
    adapters_.push_back(adapter);
    return adapter;
  }

  void submit() {
    Request request = random_request();
    request.id = "r" + std::to_string(served_.size());
    const auto num_choices = static_cast<std::size_t>(request.num_choices);
    auto alone = serve_alone(request);
    for (std::size_t i = 0; i < num_choices; ++i)
      texts_[{request.id, static_cast<std::int32_t>(i)}] = alone->choices[i].tokens;
    if (one_in(8)) request.speculation = {SpeculationMethod::kNone};
    if (one_in(8)) request.speculation = {SpeculationMethod::kPromptLookup, 1 + below(5)};
    auto sink = harness_.submit(request);
    request.adapter.reset();
    served_.push_back({std::move(request), std::move(alone), std::move(sink), std::vector<bool>(num_choices)});
  }

  std::shared_ptr<KeepingSink> serve_alone(const Request& request) const {
    HarnessOptions roomy{
        .num_blocks = 400, .block_size = 16, .vocab = kWideVocab, .window = options_.window, .eos = {kEnd}};
    roomy.engine.kv_cache.enable_prefix_caching = false;
    Harness harness(roomy);
    auto sink = harness.submit(request);
    harness.run();
    return sink;
  }

  void abort_one() {
    Served& victim = served_[static_cast<std::size_t>(below(static_cast<int>(served_.size())))];
    std::optional<std::int32_t> choice;
    if (one_in(2)) choice = below(victim.request.num_choices);
    harness_.engine.queue().abort(victim.request.id, choice);
    for (std::size_t i = 0; i < victim.may_be_cut.size(); ++i) {
      if (!choice || std::cmp_equal(*choice, i)) victim.may_be_cut[i] = true;
    }
  }

  bool all_finished() const {
    return std::all_of(served_.begin(), served_.end(), [](const Served& each) { return each.sink->finished(); });
  }

  void compare(const Served& served) {
    for (std::size_t i = 0; i < served.may_be_cut.size(); ++i) {
      INFO("request " << served.request.id << ", choice " << i);
      compare(served.sink->choices[i], served.alone->choices[i], served.may_be_cut[i]);
    }
  }

  void compare(const ChoiceOutput& got, const ChoiceOutput& expected, bool may_be_cut) {
    REQUIRE(got.finishes.size() == 1);
    REQUIRE(expected.finishes.size() == 1);
    const FinishInfo& finish = got.finishes[0];
    if (finish.error) ++num_errors_;
    if (may_be_cut && finish.reason == FinishReason::kAbort) {
      REQUIRE(got.tokens.size() <= expected.tokens.size());
      CHECK(std::equal(got.tokens.begin(), got.tokens.end(), expected.tokens.begin()));
      return;
    }
    CHECK(got.tokens == expected.tokens);
    CHECK(finish.reason == expected.finishes[0].reason);
    CHECK(finish.stop_token == expected.finishes[0].stop_token);
    CHECK(finish.num_generated_tokens == expected.finishes[0].num_generated_tokens);
    CHECK((finish.error == nullptr) == (expected.finishes[0].error == nullptr));
    if (finish.error && expected.finishes[0].error) CHECK(finish.error->code == expected.finishes[0].error->code);
    CHECK(got.embedding == expected.embedding);
    compare(got.logprobs, expected.logprobs);
    REQUIRE(got.prompt_logprobs.size() == expected.prompt_logprobs.size());
    for (std::size_t i = 0; i < got.prompt_logprobs.size(); ++i) {
      REQUIRE(got.prompt_logprobs[i].has_value() == expected.prompt_logprobs[i].has_value());
      if (got.prompt_logprobs[i]) compare({*got.prompt_logprobs[i]}, {*expected.prompt_logprobs[i]});
    }
  }

  static void compare(const std::vector<TokenLogprob>& got, const std::vector<TokenLogprob>& expected) {
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].token == expected[i].token);
      CHECK(got[i].logprob == expected[i].logprob);
      CHECK(got[i].top == expected[i].top);
    }
  }

  std::mt19937 random_;
  KnownTexts texts_;
  const HarnessOptions options_;
  Harness harness_;
  std::vector<Served> served_;
  std::vector<std::weak_ptr<const Adapter>> adapters_;
  int num_errors_ = 0;
};

int setting(const char* name, int otherwise) {
  const char* asked = std::getenv(name);
  return asked != nullptr ? std::atoi(asked) : otherwise;
}

}  // namespace

TEST_CASE("a request with any fields has the same text alone and beside any others", "[engine][property]") {
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_swaps = 0;
  std::uint64_t num_hits = 0;
  std::uint64_t num_verified = 0;
  std::uint64_t num_accepted = 0;
  int num_errors = 0;
  std::int64_t num_model_rounds = 0;
  const int first_seed = setting("QUIRE_PROPERTY_SEED", 0);
  for (int seed = first_seed; seed < first_seed + setting("QUIRE_PROPERTY_LIVES", 200); ++seed) {
    INFO("seed " << seed);
    Life life(static_cast<std::uint32_t>(seed));
    life.live();
    num_preemptions += life.stats().num_preemptions;
    num_swaps += life.stats().num_swaps;
    num_hits += life.stats().prefix_cache_hits;
    num_errors += life.num_errors();
    num_model_rounds += life.num_model_rounds();
    num_verified += life.stats().num_draft_tokens;
    num_accepted += life.stats().num_accepted_tokens;
  }
  CHECK(num_preemptions > 100);
  CHECK(num_swaps > 10);
  CHECK(num_hits > 1000);
  CHECK(num_accepted > 1000);
  CHECK(num_verified > num_accepted + 200);
  CHECK(num_model_rounds > 200);
  CHECK(num_errors > 10);  // constraints that leave no token: the same error in company
}
