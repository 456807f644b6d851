// Features of requests besides tokens: constraints, budgets, probabilities, embeddings.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

// Allows exactly one text: `head`, then any token of `choices`, then `tail`, which is forced.
class FixedGrammar : public Grammar {
 public:
  FixedGrammar(std::vector<TokenId> head, std::vector<TokenId> choices, std::vector<TokenId> tail)
      : head_(std::move(head)), choices_(std::move(choices)), tail_(std::move(tail)) {}
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(*this); }

 private:
  class State : public GrammarState {
   public:
    explicit State(const FixedGrammar& grammar) : grammar_(grammar) {}
    void assign(const GrammarState& other) override { position_ = static_cast<const State&>(other).position_; }
    void fill_mask(std::span<std::uint32_t> mask) override {
      std::fill(mask.begin(), mask.end(), 0U);
      for (const TokenId token : allowed()) {
        mask[static_cast<std::size_t>(token.value) / 32] |= 1U << (static_cast<std::uint32_t>(token.value) % 32);
      }
    }
    bool accept(TokenId token) override {
      const auto next = allowed();
      if (std::find(next.begin(), next.end(), token) == next.end()) return false;
      ++position_;
      return true;
    }
    bool finished() const override { return position_ == grammar_.head_.size() + 1 + grammar_.tail_.size(); }
    std::span<const TokenId> forced_tokens() override {
      if (position_ <= grammar_.head_.size() || finished()) return {};
      return std::span(grammar_.tail_).subspan(position_ - grammar_.head_.size() - 1);
    }

   private:
    std::vector<TokenId> allowed() const {
      const std::size_t head = grammar_.head_.size();
      if (position_ < head) return {grammar_.head_[position_]};
      if (position_ == head) return grammar_.choices_;
      if (finished()) return {};
      return {grammar_.tail_[position_ - head - 1]};
    }
    const FixedGrammar& grammar_;
    std::size_t position_ = 0;
  };

  std::vector<TokenId> head_;
  std::vector<TokenId> choices_;
  std::vector<TokenId> tail_;
};

// Forbids nothing, but forces `forced` after every token that was drawn.
class EchoGrammar : public Grammar {
 public:
  explicit EchoGrammar(std::vector<TokenId> forced) : forced_(std::move(forced)) {}
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(forced_); }

 private:
  class State : public GrammarState {
   public:
    explicit State(const std::vector<TokenId>& forced) : forced_(forced) {}
    void assign(const GrammarState& other) override { position_ = static_cast<const State&>(other).position_; }
    void fill_mask(std::span<std::uint32_t> mask) override { std::fill(mask.begin(), mask.end(), ~0U); }
    bool accept(TokenId) override {
      position_ = (position_ + 1) % (forced_.size() + 1);
      return true;
    }
    bool finished() const override { return false; }
    std::span<const TokenId> forced_tokens() override {
      return std::span(forced_).first(position_ == 1 ? forced_.size() : 0);
    }

   private:
    const std::vector<TokenId>& forced_;
    std::size_t position_ = 0;
  };
  std::vector<TokenId> forced_;
};

// Gives up after `most` tokens: at the request for the next mask or, `early`, with the last of them.
class CostlyGrammar : public Grammar {
 public:
  CostlyGrammar(int most, bool early) : most_(most), early_(early) {}
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(most_, early_); }

 private:
  class State : public GrammarState {
   public:
    State(int most, bool early) : left_(most), early_(early) {}
    void assign(const GrammarState& other) override { *this = static_cast<const State&>(other); }
    void fill_mask(std::span<std::uint32_t> mask) override {
      exhausted_ = left_ == 0;
      std::fill(mask.begin(), mask.end(), exhausted_ ? 0U : ~0U);
    }
    bool accept(TokenId) override {
      exhausted_ = --left_ == 0 && early_;
      return !exhausted_;
    }
    bool finished() const override { return false; }
    bool exhausted() const override { return exhausted_; }
    std::span<const TokenId> forced_tokens() override { return {}; }

   private:
    int left_;
    bool early_;
    bool exhausted_ = false;
  };
  int most_;
  bool early_;
};

Request constrained(int max_tokens) {
  Request request = request_of(made_tokens(6, 1), max_tokens);
  request.grammar =
      std::make_shared<FixedGrammar>(tokens_of({7, 8}), tokens_of({20, 21, 22}), tokens_of({30, 31, 32, 33, 34, 35}));
  return request;
}

struct JumpedAndAsked {
  std::shared_ptr<KeepingSink> jumped;  // forced text was not asked of the model
  std::shared_ptr<KeepingSink> asked;   // the request with logprobs
};

JumpedAndAsked jumped_and_asked(Request request, int num_logprobs) {
  Harness jumping;
  const auto jumped = jumping.submit(request);
  jumping.run();
  request.sampling.num_logprobs = num_logprobs;
  Harness asking;
  const auto asked = asking.submit(std::move(request));
  asking.run();
  return {jumped, asked};
}

}  // namespace

TEST_CASE("a grammar decides what is generated, and forced text is not asked of the model", "[engine]") {
  Harness harness;
  const auto sink = harness.submit(constrained(50));
  harness.run();
  const ChoiceOutput& choice = sink->choices[0];
  REQUIRE(choice.tokens.size() == 9);
  CHECK(choice.tokens[0] == TokenId{7});
  CHECK(choice.tokens[2].value >= 20);
  CHECK(choice.tokens[2].value <= 22);
  CHECK(choice.tokens.back() == TokenId{35});
  CHECK(choice.finishes.at(0).reason == FinishReason::kStop);
  CHECK(choice.num_events == 3);  // the forced tail came with the choice before it
  // It was never computed: the generation ended with it. With two steps in flight, one more row was computed in vain.
  CHECK(harness.model.num_rows == 6 + 2 + (harness.depth - 1));
}

TEST_CASE("a grammar that is too much work ends its own request with an error", "[engine]") {
  for (const bool early : {false, true}) {
    Harness harness;
    Request request = request_of(made_tokens(6, 1), 50);
    request.grammar = std::make_shared<CostlyGrammar>(3, early);
    const auto sink = harness.submit(request);
    const auto neighbour = harness.submit(request_of(made_tokens(6, 2), 9));
    harness.run();
    REQUIRE(sink->choices[0].finishes.size() == 1);
    const FinishInfo& info = sink->choices[0].finishes[0];
    CHECK(info.reason == FinishReason::kError);
    REQUIRE(info.error);
    CHECK(info.error->kind == ErrorKind::kInvalidRequest);
    CHECK(info.error->code == "grammar_too_costly");
    CHECK(neighbour->choices[0].tokens.size() == 9);
  }
}

TEST_CASE("forced text is the same token by token, where logprobs are asked for", "[engine]") {
  const auto [fast, slow] = jumped_and_asked(constrained(50), 1);
  CHECK(slow->choices[0].tokens == fast->choices[0].tokens);
  CHECK(slow->choices[0].logprobs.size() == slow->choices[0].tokens.size());
  CHECK(slow->choices[0].num_events == 9);
}

TEST_CASE("forced text is the grammar's spelling, where logprobs are asked for too", "[engine]") {
  Request request = request_of(made_tokens(6, 1), 30);
  request.sampling.temperature = 1.0F;
  request.sampling.seed = 3;
  request.grammar = std::make_shared<EchoGrammar>(tokens_of({40, 41, 42}));
  const auto [fast, slow] = jumped_and_asked(request, 0);
  CHECK(slow->choices[0].tokens == fast->choices[0].tokens);
  CHECK(slow->choices[0].tokens[1] == TokenId{40});
  CHECK(slow->choices[0].tokens[3] == TokenId{42});
  CHECK(slow->choices[0].logprobs.size() == 30);
}

TEST_CASE("max_tokens cuts forced text too", "[engine]") {
  Harness harness;
  const auto sink = harness.submit(constrained(5));
  harness.run();
  CHECK(sink->choices[0].tokens.size() == 5);
  CHECK(sink->choices[0].finishes.at(0).reason == FinishReason::kLength);
}

TEST_CASE("forced text survives preemption", "[engine]") {
  // The tail is longer than the streaming limit, and the pool is too small for all.
  std::vector<TokenId> tail = made_tokens(45, 9);
  const auto grammar = std::make_shared<FixedGrammar>(tokens_of({1}), tokens_of({2, 3}), tail);
  Request request = request_of(made_tokens(6, 1), 100);
  request.grammar = grammar;
  Harness roomy;
  const auto expected = roomy.submit(request);
  roomy.run();
  Harness tight({.num_blocks = 27});
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < 3; ++i)
    sinks.push_back(tight.submit(request));
  const auto other = tight.submit(request_of(made_tokens(20, 5), 60));
  tight.run();
  for (const auto& sink : sinks)
    CHECK(sink->choices[0].tokens == expected->choices[0].tokens);
  CHECK(other->choices[0].tokens.size() == 60);
}

TEST_CASE("constraints that leave no token are the request's own error", "[engine]") {
  Harness harness;
  Request request = constrained(50);
  request.sampling.allowed_token_ids = tokens_of({1});
  const auto sink = harness.submit(request);
  const auto other = harness.submit(request_of(made_tokens(5, 2), 4));
  harness.run();
  REQUIRE(sink->choices[0].finishes.size() == 1);
  CHECK(sink->choices[0].finishes[0].error->code == "no_token_allowed");
  CHECK(other->choices[0].tokens.size() == 4);
}

TEST_CASE("text that a grammar forces keeps to what the request forbids", "[engine]") {
  Request request = request_of(made_tokens(6, 1), 30);
  request.grammar = std::make_shared<EchoGrammar>(tokens_of({40, 41, 42}));
  TokenId forbidden{41};
  SECTION("bad words") {
    request.sampling.bad_words = {tokens_of({40, 41})};
  }
  SECTION("tokens that are not allowed") {
    for (int id = 0; id < 64; ++id) {
      if (id != 42) request.sampling.allowed_token_ids.push_back(TokenId{id});
    }
    forbidden = TokenId{42};
  }
  SECTION("stop tokens before min_tokens") {
    request.sampling.stop_token_ids = tokens_of({41});
    request.sampling.min_tokens = 30;
  }
  const auto [fast, slow] = jumped_and_asked(request, 0);
  const std::vector<TokenId>& tokens = fast->choices[0].tokens;
  CHECK(tokens.size() == 30);
  CHECK(tokens[1] == TokenId{40});
  CHECK(std::find(tokens.begin(), tokens.end(), forbidden) == tokens.end());
  CHECK(slow->choices[0].tokens == tokens);
}

TEST_CASE("prompt logprobs are the same whole, in chunks, and after preemption", "[engine]") {
  Request request = request_of(made_tokens(30, 1), 8);
  request.sampling.num_prompt_logprobs = 2;
  Harness whole;
  const auto expected = whole.submit(request);
  whole.run();
  const auto& logprobs = expected->choices[0].prompt_logprobs;
  REQUIRE(logprobs.size() == 30);
  CHECK_FALSE(logprobs[0]);
  for (std::size_t i = 1; i < 30; ++i) {
    REQUIRE(logprobs[i]);
    CHECK(logprobs[i]->token == request.prompt[i]);
    CHECK(logprobs[i]->top.size() == 2);
    CHECK(logprobs[i]->logprob <= logprobs[i]->top[0].second);
  }
  HarnessOptions options{.num_blocks = 15};
  options.engine.scheduler.max_num_batched_tokens = GENERATE(5, 64);
  Harness chunked(options);
  const auto older = chunked.submit(request_of(made_tokens(4, 9), 50));
  const auto again = chunked.submit(request);
  chunked.run();
  REQUIRE(again->choices[0].prompt_logprobs.size() == 30);
  for (std::size_t i = 1; i < 30; ++i) {
    CHECK(again->choices[0].prompt_logprobs[i]->logprob == logprobs[i]->logprob);
  }
  CHECK(older->choices[0].tokens.size() == 50);
}

TEST_CASE("however many ask for prompt logprobs, a step keeps the logits of a few rows", "[engine]") {
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request_of(made_tokens(90 + 7 * i, i), 6));
    if (i % 4 != 3) requests.back().sampling.num_prompt_logprobs = 0;
  }
  Harness harness({.num_blocks = 2000});
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const Request& request : requests)
    sinks.push_back(harness.submit(request));
  harness.step();
  // Requests 3, 7 and 11 were not queued behind those that scored prompts.
  const std::int64_t num_others = (90 + 7 * 3) + (90 + 7 * 7) + (90 + 7 * 11);
  if (harness.depth == 1) CHECK(harness.model.num_rows == kMaxPromptLogitRows + num_others);
  harness.run();
  CHECK(harness.model.most_logit_rows <= kMaxPromptLogitRows + 12);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Harness roomy({.num_blocks = 2000});
    const auto alone = roomy.submit(requests[i]);
    roomy.run();
    CHECK(sinks[i]->choices[0].tokens == alone->choices[0].tokens);
    REQUIRE(sinks[i]->choices[0].prompt_logprobs.size() == alone->choices[0].prompt_logprobs.size());
    for (std::size_t p = 1; p < alone->choices[0].prompt_logprobs.size(); ++p)
      CHECK(sinks[i]->choices[0].prompt_logprobs[p]->logprob == alone->choices[0].prompt_logprobs[p]->logprob);
  }
}

TEST_CASE("max_tokens 0 computes the prompt and generates nothing", "[engine]") {
  Request request = request_of(made_tokens(9, 1), 0);
  request.sampling.num_prompt_logprobs = 0;
  request.num_choices = 2;
  Harness harness;
  const auto sink = harness.submit(request);
  harness.run();
  CHECK(sink->choices[0].prompt_logprobs.size() == 9);
  for (const ChoiceOutput& choice : sink->choices) {
    CHECK(choice.tokens.empty());
    REQUIRE(choice.finishes.size() == 1);
    CHECK(choice.finishes[0].reason == FinishReason::kLength);
  }
}

TEST_CASE("embeddings are the same whole and in chunks, of unit length, beside generation", "[engine]") {
  const Pooling pooling = GENERATE(Pooling::kMean, Pooling::kLast, Pooling::kCls);
  Request request = request_of(made_tokens(23, 1), 0);
  request.pooling = pooling;
  Harness whole;
  const auto expected = whole.submit(request);
  whole.run();
  const std::vector<float>& embedding = expected->choices[0].embedding;
  REQUIRE(embedding.size() == 4);
  double square = 0.0;
  for (const float value : embedding)
    square += static_cast<double>(value) * static_cast<double>(value);
  CHECK(square == Approx(1.0).epsilon(1e-5));
  CHECK(expected->choices[0].finishes.at(0).reason == FinishReason::kStop);
  HarnessOptions options;
  options.engine.scheduler.max_num_batched_tokens = 5;
  Harness chunked(options);
  const auto generating = chunked.submit(request_of(made_tokens(7, 2), 6));
  const auto first = chunked.submit(request);
  chunked.run();
  const auto cached = chunked.submit(request);
  chunked.run();
  CHECK(first->choices[0].embedding == embedding);
  CHECK(cached->choices[0].embedding == embedding);
  CHECK(generating->choices[0].tokens.size() == 6);
  CHECK(chunked.engine.stats().num_blocks_used == 0);
}

TEST_CASE("vectors of every token, of no wanted length, and the logits of tokens, whole and in chunks", "[engine]") {
  Request request = request_of(made_tokens(23, 1), 0);
  request.pooling = GENERATE(Pooling::kEach, Pooling::kMean, Pooling::kLast);
  request.pooled_output = GENERATE(PooledOutput::kVector, PooledOutput::kTokenLogprobs);
  request.scored_tokens = {TokenId{3}, TokenId{1}};
  const bool reads_logits = request.pooled_output == PooledOutput::kTokenLogprobs;
  if (reads_logits && request.pooling != Pooling::kLast) return;  // the logits are the last position's
  const auto embedded = [](Request asked, std::int32_t budget) {
    HarnessOptions options;
    if (budget > 0) options.engine.scheduler.max_num_batched_tokens = budget;
    Harness harness(options);
    const auto generating = harness.submit(request_of(made_tokens(7, 2), 6));
    const auto sink = harness.submit(std::move(asked));
    harness.run();
    CHECK(generating->choices[0].tokens.size() == 6);
    return sink->choices[0].embedding;
  };
  const std::vector<float> whole = embedded(request, 0);
  REQUIRE(whole.size() == (reads_logits ? 2U : request.pooling == Pooling::kEach ? 23U * 4U : 4U));
  CHECK(embedded(request, 5) == whole);
  if (request.pooling == Pooling::kMean) {
    Request each = request;
    each.pooling = Pooling::kEach;
    const std::vector<float> rows = embedded(each, 0);
    double sum = 0.0;
    for (std::size_t at = 0; at < rows.size(); at += 4)
      sum += static_cast<double>(rows[at]);
    CHECK(static_cast<double>(whole[0]) == Approx(sum / 23.0).epsilon(1e-5));
  }
  if (!reads_logits) return;
  std::reverse(request.scored_tokens.begin(), request.scored_tokens.end());
  CHECK(embedded(request, 0) == std::vector<float>{whole[1], whole[0]});
}

TEST_CASE("a classifier's scores are the same whole and in chunks", "[engine]") {
  Request request = request_of(made_tokens(23, 1), 0);
  request.pooling = GENERATE(Pooling::kLast, Pooling::kCls);
  request.pooled_output = PooledOutput::kLabels;
  std::vector<float> whole;
  for (const std::int32_t budget : {64, 5}) {
    HarnessOptions options;
    options.engine.scheduler.max_num_batched_tokens = budget;
    Harness harness(options);
    const auto sink = harness.submit(request);
    harness.run();
    const std::vector<float>& labels = sink->choices[0].embedding;
    REQUIRE(labels.size() == 3);
    if (whole.empty()) whole = labels;
    CHECK(labels == whole);
  }
}

TEST_CASE("requests that wait too long are refused with the time to come back", "[engine]") {
  HarnessOptions options;
  options.engine.scheduler.max_num_seqs = 1;
  options.engine.queue.max_queue_time_s = 0.005;
  Harness harness(options);
  const auto running = harness.submit(request_of(made_tokens(6, 1), 30));
  harness.step();
  const auto late = harness.submit(request_of(made_tokens(6, 2), 30));
  harness.run();
  CHECK(running->choices[0].tokens.size() == 30);
  REQUIRE(late->choices[0].finishes.size() == 1);
  CHECK(late->choices[0].finishes[0].error->code == "queue_timeout");
  CHECK(late->choices[0].finishes[0].error->retry_after);
}

TEST_CASE("an idle engine's next refusal still tells the rate at which it works", "[engine]") {
  HarnessOptions options;
  options.engine.scheduler.max_num_seqs = 1;
  options.engine.queue.max_queued_requests = 1;
  Harness harness(options);
  harness.submit(request_of(made_tokens(6, 1), 30));
  harness.run();
  harness.now += std::chrono::hours(12);
  const auto running = harness.submit(request_of(made_tokens(6, 2), 30));
  harness.step();
  harness.submit(request_of(made_tokens(6, 3), 30));
  harness.submit(request_of(made_tokens(6, 4), 30));
  REQUIRE_FALSE(harness.refused);
  CHECK(harness.refused.error().retry_after == std::chrono::seconds(1));
  harness.run();
  CHECK(running->choices[0].tokens.size() == 30);
}
