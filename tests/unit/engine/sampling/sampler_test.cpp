#include "core/sampling/sampler.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <thread>

#include "core/sampling/dry.h"
#include "core/sampling/philox.h"
#include "core/sampling/softmax.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

struct Sampled {
  std::optional<TokenId> token;
  std::optional<TokenLogprob> logprob;
};

// Draws one token after `tokens`, of which the first num_prompt are the prompt.
Sampled sample(const SamplingParams& params, std::vector<float> logits, std::vector<TokenId> tokens = tokens_of({0}),
               std::int64_t num_prompt = 1, std::uint64_t seed = 1, std::vector<TokenId> ends = {}) {
  FakeBackend backend;
  Sampler sampler(backend);
  const std::span<const TokenId> prompt(tokens.data(), static_cast<std::size_t>(num_prompt));
  SamplerState state(params, prompt, ends, static_cast<std::int64_t>(logits.size()), seed, 0);
  for (std::size_t i = prompt.size(); i < tokens.size(); ++i)
    state.append(tokens[i]);
  std::array<SampleRow, 1> rows{
      SampleRow{.logits = logits, .state = &state, .tokens = tokens, .num_prompt_tokens = num_prompt, .mask = {}}};
  sampler.sample(rows);
  return {rows[0].drawn.token, rows[0].drawn.logprob};
}

// Shares of each token among 4,000 seeds.
std::map<int, double> shares(const SamplingParams& params, const std::vector<float>& logits) {
  std::map<int, double> found;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    found[sample(params, logits, tokens_of({0}), 1, seed).token->value] += 1.0 / 4000.0;
  }
  return found;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0F;
  return params;
}

// Logits of the given probabilities.
std::vector<float> of_probabilities(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities)
    logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<int> kept(const SamplingParams& params, const std::vector<float>& logits) {
  std::vector<int> tokens;
  for (const auto& [token, share] : shares(params, logits))
    tokens.push_back(token);
  return tokens;
}

}  // namespace

TEST_CASE("philox gives the published numbers", "[sampler]") {
  // Known answers of the Random123 distribution.
  CHECK(philox(0, {0, 0, 0, 0}) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(0xffffffffffffffff, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the exponential is exact to single precision", "[sampler]") {
  for (float x = -86.9F; x <= 0.0F; x += 0.0137F) {
    const double exact = std::exp(static_cast<double>(x));
    CHECK(std::abs(static_cast<double>(exp_nonpositive(x)) - exact) <= exact * 3e-7);
  }
  CHECK(exp_nonpositive(0.0F) == 1.0F);
  CHECK(exp_nonpositive(-200.0F) == 0.0F);
  CHECK(exp_nonpositive(-std::numeric_limits<float>::infinity()) == 0.0F);
}

TEST_CASE("greedy takes the largest logit, of equal ones the lowest id", "[sampler]") {
  CHECK(sample(greedy(), {1.0F, 3.0F, 2.0F, 3.0F}).token == TokenId{1});
  std::vector<float> wide(1000, -1.0F);
  wide[777] = 2.0F;
  wide[999] = 2.0F;
  CHECK(sample(greedy(), wide).token == TokenId{777});
  wide[5] = std::nanf("");
  CHECK(sample(greedy(), wide).token == TokenId{777});
}

TEST_CASE("temperature 1 draws by the model's probabilities", "[sampler]") {
  const auto found = shares({}, of_probabilities({0.5, 0.3, 0.15, 0.05}));
  CHECK(found.at(0) == Approx(0.5).margin(0.03));
  CHECK(found.at(1) == Approx(0.3).margin(0.03));
  CHECK(found.at(3) == Approx(0.05).margin(0.015));
}

TEST_CASE("the filters keep what they say", "[sampler]") {
  const std::vector<float> logits = of_probabilities({0.4, 0.1, 0.3, 0.15, 0.05});
  SamplingParams params;
  SECTION("top_k") {
    params.top_k = 2;
    CHECK(kept(params, logits) == std::vector<int>{0, 2});
  }
  SECTION("top_p") {
    params.top_p = 0.75F;
    CHECK(kept(params, logits) == std::vector<int>{0, 2, 3});
  }
  SECTION("top_p of what top_k left") {
    params.top_k = 2;
    params.top_p = 0.55F;  // 0.4 of 0.7 is 0.571
    CHECK(kept(params, logits) == std::vector<int>{0});
  }
  SECTION("min_p") {
    params.min_p = 0.3F;
    CHECK(kept(params, logits) == std::vector<int>{0, 2, 3});
  }
  SECTION("top_a") {
    params.top_a = 0.7F;  // the square of 0.4 is 0.16
    CHECK(kept(params, logits) == std::vector<int>{0, 2, 3});
  }
  SECTION("typical_p") {
    // The entropy is 1.39 nats: 0.3 (1.20) and 0.15 (1.90) are nearest, then 0.4 (0.92).
    params.typical_p = 0.5F;
    CHECK(kept(params, logits) == std::vector<int>{0, 2});
  }
  SECTION("xtc") {
    params.xtc_probability = 1.0F;
    params.xtc_threshold = 0.12F;  // 0.4, 0.3 and 0.15 are likely: the last of them stays
    CHECK(kept(params, logits) == std::vector<int>{1, 3, 4});
  }
  SECTION("allowed tokens") {
    params.allowed_token_ids = tokens_of({1, 4});
    CHECK(kept(params, logits) == std::vector<int>{1, 4});
  }
}

TEST_CASE("a temperature that comes last changes what is drawn, not what is kept", "[sampler]") {
  const std::vector<float> logits = of_probabilities({0.4, 0.1, 0.3, 0.15, 0.05});
  SamplingParams params;
  params.temperature = 2.0F;
  params.top_p = 0.65F;
  CHECK(kept(params, logits) == std::vector<int>{0, 2, 3});
  params.temperature_last = true;
  CHECK(kept(params, logits) == std::vector<int>{0, 2});
  const double share = std::sqrt(0.4) / (std::sqrt(0.4) + std::sqrt(0.3));
  CHECK(shares(params, logits).at(0) == Approx(share).margin(0.03));
}

TEST_CASE("filters over a wide vocabulary agree with a full sort", "[sampler]") {
  std::vector<float> logits;
  for (const TokenId token : made_tokens(20'000, 3, 100'000))
    logits.push_back(static_cast<float>(token.value) * 1.5e-4F);
  std::vector<std::size_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  double total = 0.0;
  for (const float logit : logits)
    total += std::exp(static_cast<double>(logit));
  const auto rank_of = [&](int token) {
    return std::find(order.begin(), order.end(), static_cast<std::size_t>(token)) - order.begin();
  };
  SamplingParams params;
  std::ptrdiff_t limit = 0;
  SECTION("top_k") {
    params.top_k = 37;
    limit = 37;
  }
  SECTION("top_p") {
    params.top_p = 0.3F;
    for (double sum = 0.0; sum < 0.3 * total; ++limit) {
      sum += std::exp(static_cast<double>(logits[order[static_cast<std::size_t>(limit)]]));
    }
  }
  std::ptrdiff_t largest = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    largest = std::max(largest, rank_of(sample(params, logits, tokens_of({0}), 1, seed).token->value));
  }
  CHECK(largest < limit);
  CHECK(largest > limit * 8 / 10);
}

TEST_CASE("the rows of a batch are sampled on the compute threads, each as it would be alone", "[sampler]") {
  // Gives every piece of work to a thread of its own, all at once.
  struct ThreadedBackend final : FakeBackend {
    void parallel_for(std::int64_t count, std::int64_t grain,
                      const std::function<void(std::int64_t, std::int64_t)>& body) override {
      std::vector<std::thread> threads;
      for (std::int64_t begin = 0; begin < count; begin += grain)
        threads.emplace_back([=, &body] { body(begin, std::min(count, begin + grain)); });
      num_pieces += static_cast<std::int64_t>(threads.size());
      for (std::thread& thread : threads)
        thread.join();
    }
    std::int64_t num_pieces = 0;
  };
  constexpr std::size_t kRows = 12;
  const std::vector<TokenId> tokens = tokens_of({0, 3});
  std::vector<SamplingParams> params(kRows);
  std::vector<std::vector<float>> logits(kRows);
  std::vector<Sampled> alone;
  for (std::size_t i = 0; i < kRows; ++i) {
    params[i].temperature = i % 4 == 0 ? 0.0F : 0.7F;
    params[i].top_k = i % 4 == 1 ? 50 : 0;
    params[i].top_p = i % 4 == 2 ? 0.8F : 1.0F;
    for (const TokenId token : made_tokens(3000, static_cast<int>(i), 100'000))
      logits[i].push_back(static_cast<float>(token.value) * 1e-4F);
    alone.push_back(sample(params[i], logits[i], tokens, 1, i));
  }
  ThreadedBackend backend;
  Sampler sampler(backend);
  std::vector<std::unique_ptr<SamplerState>> states;
  std::vector<SampleRow> rows;
  for (std::size_t i = 0; i < kRows; ++i) {
    states.push_back(
        std::make_unique<SamplerState>(params[i], std::span(tokens).first(1), std::span<const TokenId>(), 3000, i, 0));
    rows.push_back(
        {.logits = logits[i], .state = states[i].get(), .tokens = tokens, .num_prompt_tokens = 1, .mask = {}});
  }
  sampler.sample(rows);
  CHECK(backend.num_pieces == kRows);
  for (std::size_t i = 0; i < kRows; ++i)
    CHECK(rows[i].drawn.token == alone[i].token);
}

TEST_CASE("penalties", "[sampler]") {
  SamplingParams params = greedy();
  const std::vector<TokenId> tokens = tokens_of({0, 1, 1, 2});  // 0 is the prompt
  SECTION("repetition counts the prompt, and divides or multiplies by sign") {
    params.repetition_penalty = 2.0F;
    CHECK(sample(params, {3.0F, 3.0F, 3.0F, 1.6F}, tokens, 1).token == TokenId{3});
    CHECK(sample(params, {-1.0F, -1.0F, -1.0F, -1.9F}, tokens, 1).token == TokenId{3});
  }
  SECTION("frequency counts what was generated") {
    params.frequency_penalty = 0.6F;
    CHECK(sample(params, {0.7F, 2.0F, 1.5F, 0.0F}, tokens, 1).token == TokenId{2});
  }
  SECTION("presence is once") {
    params.presence_penalty = 1.0F;
    CHECK(sample(params, {0.7F, 2.0F, 1.5F, 0.0F}, tokens, 1).token == TokenId{1});
    CHECK(sample(params, {1.1F, 2.0F, 1.5F, 0.0F}, tokens, 1).token == TokenId{0});
  }
  SECTION("in a window all three count its tokens, prompt or not, and no others") {
    params.penalty_last_n = 3;  // 1, 1, 2
    params.repetition_penalty = 2.0F;
    CHECK(sample(params, {1.0F, 1.9F, 1.9F, 0.0F}, tokens, 1).token == TokenId{0});
    params.repetition_penalty = 1.0F;
    params.frequency_penalty = 0.6F;
    CHECK(sample(params, {0.7F, 2.0F, 1.5F, 0.0F}, tokens, 4).token == TokenId{2});
    params.penalty_last_n = -1;
    CHECK(sample(params, {1.0F, 1.5F, 0.9F, 0.0F}, tokens, 4).token == TokenId{0});
    params.penalty_last_n = 0;
    CHECK(sample(params, {0.7F, 2.0F, 1.5F, 0.0F}, tokens, 4).token == TokenId{1});
  }
  SECTION("bias") {
    params.logit_bias = {{TokenId{3}, 5.0F}, {TokenId{1}, -100.0F}};
    CHECK(sample(params, {0.0F, 20.0F, 1.0F, 0.0F}, tokens, 1).token == TokenId{3});
  }
  SECTION("bad words are banned where they would be completed") {
    params.bad_words = {tokens_of({1, 2, 3}), tokens_of({2, 2}), tokens_of({0})};
    CHECK(sample(params, {9.0F, 1.0F, 7.0F, 8.0F}, tokens, 1).token == TokenId{1});
    CHECK(sample(params, {9.0F, 1.0F, 7.0F, 8.0F}, tokens_of({0, 1}), 1).token == TokenId{3});
  }
  SECTION("min_tokens keeps the end away") {
    params.min_tokens = 4;
    params.stop_token_ids = tokens_of({2});
    CHECK(sample(params, {0.0F, 1.0F, 2.0F, 3.0F}, tokens, 1, 1, tokens_of({3})).token == TokenId{1});
    params.min_tokens = 3;
    CHECK(sample(params, {0.0F, 1.0F, 2.0F, 3.0F}, tokens, 1, 1, tokens_of({3})).token == TokenId{3});
  }
  SECTION("nothing left is no token") {
    params.allowed_token_ids = tokens_of({1});
    params.bad_words = {tokens_of({1})};
    CHECK_FALSE(sample(params, {0.0F, 1.0F, 2.0F}, tokens, 1).token);
  }
}

TEST_CASE("DRY costs what continues a repetition, by its length", "[sampler]") {
  DryParams params{.multiplier = 1.0F, .base = 2.0F, .allowed_length = 2, .breakers = {}};
  DryScratch scratch;
  const auto found = dry_penalties(params, tokens_of({5, 1, 2, 3, 4, 9, 1, 2, 3}), scratch);
  REQUIRE(found.size() == 1);
  CHECK(found[0].token == TokenId{4});
  CHECK(found[0].penalty == 2.0F);  // three repeated tokens, one more than allowed
  params.breakers = {tokens_of({2})};
  CHECK(dry_penalties(params, tokens_of({5, 1, 2, 3, 4, 9, 1, 2, 3}), scratch).empty());
  params.breakers = {tokens_of({4})};  // the penalised token itself ends repetitions
  CHECK(dry_penalties(params, tokens_of({5, 1, 2, 3, 4, 9, 1, 2, 3}), scratch).empty());
  params.breakers = {tokens_of({4, 8})};
  CHECK(dry_penalties(params, tokens_of({5, 1, 2, 3, 4, 9, 1, 2, 3}), scratch).size() == 1);
  params.breakers = {};
  params.penalty_last_n = 6;
  CHECK(dry_penalties(params, tokens_of({5, 1, 2, 3, 4, 9, 1, 2, 3}), scratch).empty());
  params.penalty_last_n = -1;
  params.allowed_length = 1;
  const auto both = dry_penalties(params, tokens_of({1, 2, 1, 3, 1}), scratch);
  REQUIRE(both.size() == 2);
  CHECK(both[0].token == TokenId{2});
  CHECK(both[0].penalty == 1.0F);
  CHECK(both[1].token == TokenId{3});
}

TEST_CASE("logprobs are the model's own, whatever the sampler does", "[sampler]") {
  SamplingParams params = greedy();
  params.num_logprobs = 2;
  params.logit_bias = {{TokenId{2}, 50.0F}};
  const Sampled found = sample(params, of_probabilities({0.5, 0.3, 0.2}));
  CHECK(found.token == TokenId{2});
  REQUIRE(found.logprob);
  CHECK(found.logprob->logprob == Approx(std::log(0.2)).epsilon(1e-5));
  REQUIRE(found.logprob->top.size() == 2);
  CHECK(found.logprob->top[0].first == TokenId{0});
  CHECK(found.logprob->top[1].second == Approx(std::log(0.3)).epsilon(1e-5));
}

TEST_CASE("a draw depends on seed, choice and position only", "[sampler]") {
  CHECK(uniform(1, 0, 5, Draw::kToken) == uniform(1, 0, 5, Draw::kToken));
  CHECK(uniform(1, 0, 5, Draw::kToken) != uniform(2, 0, 5, Draw::kToken));
  CHECK(uniform(1, 0, 5, Draw::kToken) != uniform(1, 1, 5, Draw::kToken));
  CHECK(uniform(1, 0, 5, Draw::kToken) != uniform(1, 0, 6, Draw::kToken));
  CHECK(uniform(1, 0, 5, Draw::kToken) != uniform(1, 0, 5, Draw::kXtc));
  double sum = 0.0;
  for (int i = 0; i < 100'000; ++i)
    sum += uniform(7, 0, i, Draw::kToken);
  CHECK(sum / 100'000 == Approx(0.5).margin(0.005));
}
