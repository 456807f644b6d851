// The sampler against a plain reading of its documentation: every step over the whole vocabulary, in double precision
// and without any short cut. Draws are compared by chi-square over fixed seeds.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>

#include "core/sampling/sampler.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

using Weights = std::vector<double>;  // by token; 0: cannot be drawn

struct Situation {
  SamplingParams params;
  std::vector<float> logits;
  std::vector<TokenId> tokens;
  std::int64_t num_prompt = 0;
};

bool is_breaker(const DryParams& dry, TokenId token) {
  return std::find(dry.breakers.begin(), dry.breakers.end(), std::vector<TokenId>{token}) != dry.breakers.end();
}

// Subtracts a penalty from tokens that would continue a repetition of the text's end, by its length.
void penalize_repetition(const Situation& at, Weights& logits) {
  const DryParams& dry = at.params.dry;
  if (dry.multiplier <= 0.0F) return;
  const std::vector<TokenId>& text = at.tokens;
  std::map<TokenId, int> longest;
  for (std::size_t end = 1; end < text.size(); ++end) {  // text[end] came after a repetition of the last tokens
    int length = 0;
    while (std::cmp_less(length, end)) {
      const auto back = static_cast<std::size_t>(length) + 1;
      if (text[end - back] != text[text.size() - back] || is_breaker(dry, text[text.size() - back])) break;
      ++length;
    }
    if (!is_breaker(dry, text[end])) longest[text[end]] = std::max(longest[text[end]], length);
  }
  for (const auto& [token, length] : longest) {
    if (length >= dry.allowed_length) {
      logits[static_cast<std::size_t>(token.value)] -=
          static_cast<double>(dry.multiplier) * std::pow(static_cast<double>(dry.base), length - dry.allowed_length);
    }
  }
}

void penalize_counts(const Situation& at, Weights& logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const TokenId token{static_cast<int>(id)};
    const auto generated = at.tokens.begin() + at.num_prompt;
    const auto count = std::count(generated, at.tokens.end(), token);
    const bool seen = std::find(at.tokens.begin(), at.tokens.end(), token) != at.tokens.end();
    const auto repetition = static_cast<double>(at.params.repetition_penalty);
    if (seen) logits[id] = logits[id] > 0.0 ? logits[id] / repetition : logits[id] * repetition;
    logits[id] -= static_cast<double>(at.params.frequency_penalty) * static_cast<double>(count);
    if (count > 0) logits[id] -= static_cast<double>(at.params.presence_penalty);
  }
}

double sum_of(const Weights& weights) {
  double sum = 0.0;
  for (const double weight : weights)
    sum += weight;
  return sum;
}

// Keeps tokens in the order given until they make up `share` of all; the others cannot be drawn any more.
void keep_first(Weights& weights, const std::vector<std::size_t>& order, double share) {
  const double enough = share * sum_of(weights);
  double sum = 0.0;
  for (const std::size_t id : order) {
    if (sum >= enough) weights[id] = 0.0;
    sum += weights[id];
  }
}

std::vector<std::size_t> ordered(const Weights& weights, const std::function<double(std::size_t)>& key) {
  std::vector<std::size_t> order;
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] > 0.0) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return order;
}

std::vector<std::size_t> best_first(const Weights& weights) {
  return ordered(weights, [&](std::size_t id) { return -weights[id]; });
}

void cut_typical(Weights& weights, double typical_p) {
  const double total = sum_of(weights);
  double entropy = 0.0;
  for (const double weight : weights) {
    if (weight > 0.0) entropy -= weight / total * std::log(weight / total);
  }
  keep_first(weights,
             ordered(weights, [&](std::size_t id) { return std::abs(-std::log(weights[id] / total) - entropy); }),
             typical_p);
}

void cut_xtc(Weights& weights, double threshold) {
  const double least = threshold * sum_of(weights);
  std::vector<std::size_t> likely = best_first(weights);
  std::erase_if(likely, [&](std::size_t id) { return weights[id] < least; });
  for (std::size_t i = 0; i + 1 < likely.size(); ++i)
    weights[likely[i]] = 0.0;
}

// The probability of each token, after all that the parameters ask for, in the documented order.
Weights probabilities(const Situation& at, bool xtc) {
  const SamplingParams& params = at.params;
  Weights logits(at.logits.begin(), at.logits.end());
  for (const auto& [token, bias] : params.logit_bias)
    logits[static_cast<std::size_t>(token.value)] += static_cast<double>(bias);
  penalize_counts(at, logits);
  penalize_repetition(at, logits);
  Weights weights(logits.size(), 0.0);
  const double best = *std::max_element(logits.begin(), logits.end());
  for (std::size_t id = 0; id < logits.size(); ++id)
    weights[id] = std::exp((logits[id] - best) / static_cast<double>(params.temperature));
  if (params.top_k > 0) {
    const auto order = best_first(weights);
    for (auto i = static_cast<std::size_t>(params.top_k); i < order.size(); ++i)
      weights[order[i]] = 0.0;
  }
  if (params.typical_p < 1.0F) cut_typical(weights, static_cast<double>(params.typical_p));
  if (params.top_p < 1.0F) keep_first(weights, best_first(weights), static_cast<double>(params.top_p));
  const double least = static_cast<double>(params.min_p) * *std::max_element(weights.begin(), weights.end());
  for (double& weight : weights)
    weight = weight < least ? 0.0 : weight;
  if (xtc) cut_xtc(weights, static_cast<double>(params.xtc_threshold));
  const double total = sum_of(weights);
  for (double& weight : weights)
    weight /= total;
  return weights;
}

Situation random_situation(std::mt19937& random) {
  const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<std::uint32_t>(bound)); };
  const auto real = [&](double low, double high) {
    return static_cast<float>(low + (high - low) * static_cast<double>(random()) * 0x1p-32);
  };
  Situation at;
  for (int i = 0; i < 25; ++i)
    at.logits.push_back(real(-3.0, 3.0));
  const int num_tokens = 1 + below(30);
  for (int i = 0; i < num_tokens; ++i)
    at.tokens.push_back(TokenId{below(6)});
  at.num_prompt = 1 + below(num_tokens);
  SamplingParams& params = at.params;
  params.temperature = real(0.3, 2.0);
  if (below(2) == 0) params.top_k = 1 + below(20);
  if (below(2) == 0) params.top_p = real(0.3, 1.0);
  if (below(3) == 0) params.min_p = real(0.0, 0.3);
  if (below(3) == 0) params.typical_p = real(0.3, 1.0);
  if (below(3) == 0) {
    params.xtc_probability = real(0.2, 1.0);
    params.xtc_threshold = real(0.02, 0.3);
  }
  if (below(3) == 0) params.repetition_penalty = real(0.8, 1.6);
  if (below(3) == 0) params.frequency_penalty = real(-0.5, 1.0);
  if (below(3) == 0) params.presence_penalty = real(-0.5, 1.0);
  if (below(3) == 0) params.logit_bias = {{TokenId{below(25)}, real(-2.0, 2.0)}};
  if (below(2) == 0)
    params.dry = {.multiplier = real(0.2, 1.0), .base = 1.3F, .allowed_length = 1 + below(3), .breakers = {}};
  if (below(2) == 0) params.dry.breakers = {{TokenId{below(6)}}};
  return at;
}

constexpr int kDraws = 3000;

// Counts draws with kDraws seeds from `first_seed` on.
std::vector<int> draws(const Situation& at, std::uint64_t first_seed) {
  FakeBackend backend;
  Sampler sampler(backend);
  std::vector<int> counts(at.logits.size());
  for (std::uint64_t seed = first_seed; seed < first_seed + kDraws; ++seed) {
    SamplerState state(at.params, std::span(at.tokens).first(static_cast<std::size_t>(at.num_prompt)), {},
                       static_cast<std::int64_t>(at.logits.size()), seed, 0);
    for (auto i = static_cast<std::size_t>(at.num_prompt); i < at.tokens.size(); ++i)
      state.append(at.tokens[i]);
    std::vector<float> logits = at.logits;
    std::array<SampleRow, 1> rows{SampleRow{
        .logits = logits, .state = &state, .tokens = at.tokens, .num_prompt_tokens = at.num_prompt, .mask = {}}};
    sampler.sample(rows);
    ++counts[static_cast<std::size_t>(rows[0].drawn.token.value().value)];
  }
  return counts;
}

}  // namespace

TEST_CASE("draws follow a plain reading of what is documented", "[sampler]") {
  std::mt19937 random(11);
  for (int round = 0; round < 150; ++round) {
    INFO("round " << round);
    const Situation at = random_situation(random);
    const Weights without = probabilities(at, false);
    const Weights with = probabilities(at, true);
    const auto q = static_cast<double>(at.params.xtc_probability);
    const std::vector<int> counts = draws(at, static_cast<std::uint64_t>(round) * kDraws);
    double chi_square = 0.0;
    double rare = 0.0;  // tokens too rare for a term of their own are one together
    int num_rare = 0;
    int num_terms = 0;
    const auto add = [&](double expected, int count) {
      chi_square += (count - expected) * (count - expected) / expected;
      ++num_terms;
    };
    for (std::size_t id = 0; id < counts.size(); ++id) {
      const double expected = kDraws * ((1.0 - q) * without[id] + q * with[id]);
      if (expected == 0.0) CHECK(counts[id] == 0);
      if (expected >= 8.0) {
        add(expected, counts[id]);
      } else {
        rare += expected;
        num_rare += counts[id];
      }
    }
    if (rare >= 8.0) add(rare, num_rare);
    const double freedom = std::max(num_terms - 1, 1);
    CHECK(chi_square <
          freedom + 5.0 * std::sqrt(2.0 * freedom) + 10.0);  // exceeded by a list of seeds in fifty thousand
  }
}

TEST_CASE("logprobs are the log-softmax of the model's logits", "[sampler]") {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const Situation at = random_situation(random);
    double sum = 0.0;
    for (const float logit : at.logits)
      sum += std::exp(static_cast<double>(logit));
    const TokenId token{round % 25};
    const TokenLogprob found = Sampler::logprob_of(at.logits, token, 25);
    CHECK(static_cast<double>(found.logprob) ==
          Approx(static_cast<double>(at.logits[static_cast<std::size_t>(token.value)]) - std::log(sum)).margin(1e-5));
    REQUIRE(found.top.size() == 25);
    for (std::size_t i = 1; i < found.top.size(); ++i)
      CHECK(found.top[i - 1].second >= found.top[i].second);
  }
}

TEST_CASE("logits that are no numbers differ from constraints that leave nothing", "[sampler]") {
  FakeBackend backend;
  Sampler sampler(backend);
  const std::vector<TokenId> tokens = tokens_of({0});
  SamplingParams params;
  params.num_logprobs = 1;
  params.allowed_token_ids = tokens_of({1, 2});
  const SamplerState state(params, tokens, {}, 4, 1, 0);
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  const auto sampled = [&](std::vector<float> logits) {
    std::array<SampleRow, 1> rows{
        SampleRow{.logits = logits, .state = &state, .tokens = tokens, .num_prompt_tokens = 1, .mask = {}}};
    sampler.sample(rows);
    return std::pair(rows[0].drawn.token, rows[0].drawn.has_no_numbers);
  };
  CHECK(sampled({1.0F, nan, 2.0F, 3.0F}) == std::pair(std::optional(TokenId{2}), false));
  CHECK(sampled({1.0F, nan, nan, 3.0F}) == std::pair(std::optional<TokenId>(), true));
  CHECK(sampled({1.0F, -infinity, -infinity, 3.0F}) == std::pair(std::optional<TokenId>(), false));
  CHECK(sampled({nan, -infinity, -infinity, nan}) == std::pair(std::optional<TokenId>(), false));
  CHECK(sampled({1.0F, infinity, 0.0F, 3.0F}).first == TokenId{1});
}

TEST_CASE("rows that share their logits are drawn as if each had its own", "[sampler]") {
  FakeBackend backend;
  Sampler sampler(backend);
  std::mt19937 random(3);
  Situation at = random_situation(random);
  at.params = {};
  at.params.logit_bias = {{TokenId{3}, 4.0F}};
  const std::vector<float> before = at.logits;
  std::vector<std::unique_ptr<SamplerState>> states;
  std::vector<SampleRow> rows;
  for (std::int32_t choice = 0; choice < 5; ++choice) {
    states.push_back(std::make_unique<SamplerState>(at.params, at.tokens, std::span<const TokenId>(), 25, 9, choice));
    rows.push_back({.logits = at.logits,
                    .is_shared = true,
                    .state = states.back().get(),
                    .tokens = at.tokens,
                    .num_prompt_tokens = std::ssize(at.tokens),
                    .mask = {}});
  }
  sampler.sample(rows);
  CHECK(at.logits == before);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<float> own = before;
    std::array<SampleRow, 1> alone{SampleRow{.logits = own,
                                             .state = states[i].get(),
                                             .tokens = at.tokens,
                                             .num_prompt_tokens = std::ssize(at.tokens),
                                             .mask = {}}};
    sampler.sample(alone);
    CHECK(rows[i].drawn.token == alone[0].drawn.token);
  }
}
