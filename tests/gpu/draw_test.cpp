// Tokens that the emulated GPU draws and scores, beside the host's Sampler: random logits, parameters and sequences.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/sampling/draw_plan.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "tests/gpu/death.h"
#include "tests/kernels/random_data.h"

namespace quire::test {
namespace {

using gpu::EmulatedDevice;
using gpu::EmulatedDeviceOptions;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A row of logits with its sampling parameters and text.
struct DrawCase {
  SamplingParams params;
  std::vector<TokenId> tokens;
  std::int64_t num_prompt = 0;
  std::vector<std::uint32_t> mask;
  std::uint64_t seed = 0;
};

struct DrawScene {
  std::int64_t vocab = 0;
  std::vector<float> logits;  // row after row
  std::vector<DrawCase> cases;
};

class SceneMaker {
 public:
  explicit SceneMaker(std::uint32_t seed) : random_(seed) {}

  DrawScene make(std::int64_t vocab, int num_rows) {
    DrawScene scene{.vocab = vocab, .logits = {}, .cases = {}};
    for (int row = 0; row < num_rows; ++row) {
      const std::vector<float> logits = row_of_logits(vocab);
      scene.logits.insert(scene.logits.end(), logits.begin(), logits.end());
      scene.cases.push_back(draw_case(vocab));
    }
    return scene;
  }

 private:
  int below(std::int64_t bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }
  bool one_in(int n) { return below(n) == 0; }
  float share() { return static_cast<float>(below(1000)) / 1000.0f; }
  TokenId token(std::int64_t vocab) { return TokenId{below(vocab)}; }

  // Logits that are peaked, flat, tied, masked or NaN.
  std::vector<float> row_of_logits(std::int64_t vocab) {
    constexpr float kDeviations[] = {0.0f, 0.5f, 2.0f, 6.0f, 40.0f};
    std::vector<float> out = random_floats(random_, vocab, kDeviations[below(5)]);
    if (one_in(3)) {
      for (float& logit : out)
        logit = std::round(logit);
    }
    for (float& logit : out)
      logit += 3.0f;
    const auto spoil = [&](float value, int number) {
      for (int i = 0; i < number; ++i)
        out[static_cast<std::size_t>(below(vocab))] = value;
    };
    if (one_in(4)) spoil(-kInfinity, below(vocab) + 1);
    if (one_in(8)) spoil(std::nanf(""), below(vocab) / 2 + 1);
    if (one_in(16)) spoil(kInfinity, 1 + below(3));
    if (one_in(24)) std::ranges::fill(out, -kInfinity);
    return out;
  }

  DrawCase draw_case(std::int64_t vocab) {
    DrawCase out;
    out.seed = random_();
    out.num_prompt = 1 + below(20);
    const int length = static_cast<int>(out.num_prompt) + below(20);
    for (int i = 0; i < length; ++i)
      out.tokens.push_back(token(std::min<std::int64_t>(vocab, 40)));
    SamplingParams& params = out.params;
    params.max_tokens = 100;
    params.temperature = one_in(4) ? 0.0f : 0.2f + 0.2f * static_cast<float>(below(12));
    params.temperature_last = one_in(5);
    if (one_in(3)) params.top_k = one_in(4) ? below(2 * vocab) : 1 + below(50);
    if (one_in(3)) params.top_p = share();
    if (one_in(4)) params.min_p = 0.5f * share() * share();
    if (one_in(4)) params.repetition_penalty = 0.8f + share();
    if (one_in(4)) params.frequency_penalty = 2.0f * share() - 1.0f;
    if (one_in(4)) params.presence_penalty = 2.0f * share() - 1.0f;
    if (one_in(4)) params.penalty_last_n = below(20) - 1;
    if (one_in(4)) params.min_tokens = below(40);
    if (one_in(4)) params.stop_token_ids = {token(vocab), token(vocab), TokenId{static_cast<int>(vocab)}};
    if (one_in(4)) params.bad_words = {{token(vocab)}, {out.tokens.back(), token(vocab)}};
    for (int i = one_in(3) ? below(8) : 0; i > 0; --i)
      params.logit_bias.emplace_back(token(std::min<std::int64_t>(vocab, 10)), 4.0f * share() - 2.0f);
    for (int i = one_in(8) ? 1 + below(vocab) : 0; i > 0; --i)
      params.allowed_token_ids.push_back(token(vocab));
    if (one_in(2)) params.num_logprobs = one_in(3) ? 0 : below(21);
    if (one_in(3)) {
      out.mask.resize(static_cast<std::size_t>((vocab + 31) / 32) - (one_in(6) ? 1 : 0));
      const bool dense = one_in(2);
      for (std::uint32_t& word : out.mask)
        word = static_cast<std::uint32_t>(dense ? random_() | random_() : random_() & random_() & random_());
    }
    return out;
  }

  std::mt19937 random_;
};

// States of the scene's sequences, which view its parameters.
std::vector<SamplerState> states_of(const DrawScene& scene) {
  static const std::vector<TokenId> kEnds = {TokenId{3}, TokenId{1}};
  std::vector<SamplerState> out;
  out.reserve(scene.cases.size());
  for (const DrawCase& each : scene.cases) {
    const std::span<const TokenId> tokens(each.tokens);
    const auto num_prompt = static_cast<std::size_t>(each.num_prompt);
    SamplerState& state = out.emplace_back(each.params, tokens.first(num_prompt), kEnds, scene.vocab, each.seed, 0);
    for (const TokenId token : tokens.subspan(num_prompt))
      state.append(token);
  }
  return out;
}

std::vector<SampleRow> rows_of(const DrawScene& scene, const std::vector<SamplerState>& states,
                               std::vector<float>& logits) {
  std::vector<SampleRow> out;
  for (std::size_t i = 0; i < states.size(); ++i)
    out.push_back({.logits = std::span(logits).subspan(i * static_cast<std::size_t>(scene.vocab),
                                                       static_cast<std::size_t>(scene.vocab)),
                   .state = &states[i],
                   .tokens = scene.cases[i].tokens,
                   .num_prompt_tokens = scene.cases[i].num_prompt,
                   .mask = scene.cases[i].mask});
  return out;
}

// Results of a step's draws and requested scores.
struct Drawn {
  std::vector<TokenDrawn> tokens;
  std::vector<TokenScored> scores;  // scores of draws with logprobs, then token 0 by row
  std::vector<std::int32_t> asked;  // token of each score; below zero: a place
};

Drawn drawn_on(Backend& backend, const DrawScene& scene) {
  const std::vector<SamplerState> states = states_of(scene);
  std::vector<float> logits = scene.logits;
  const auto buffer = backend.upload(scene.logits);
  const auto num_rows = std::ssize(scene.cases);
  DrawPlan plan;
  std::vector<TokenScore> scores;
  const std::vector<SampleRow> rows = rows_of(scene, states, logits);
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const SampleRow& row = rows[static_cast<std::size_t>(i)];
    REQUIRE(DrawPlan::draws_on_device(*row.state));
    plan.add(row, i, num_rows - 1 - i, scene.vocab);  // places are not in the order of the rows
    if (const auto num_top = DrawPlan::num_logprobs(*row.state))
      scores.push_back({i, static_cast<std::int32_t>(i - num_rows), *num_top});
  }
  for (std::int64_t i = 0; i < num_rows; ++i)
    scores.push_back({i, 0, static_cast<std::int32_t>(i % 4)});
  StepOps& steps = *backend.steps();
  const std::int64_t step = steps.begin();
  steps.draw({buffer->data(), num_rows, scene.vocab, scene.vocab}, num_rows, plan.draws(), scores);
  steps.end();
  steps.wait(step);
  Drawn out;
  out.tokens.assign(steps.drawn(step).rbegin(), steps.drawn(step).rend());
  out.scores.assign(steps.scored(step).begin(), steps.scored(step).end());
  for (const TokenScore& score : scores)
    out.asked.push_back(score.token);
  return out;
}

bool same_number(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

void check_score(const TokenScored& got, const TokenLogprob& expected) {
  const double log_sum = std::log(got.sum);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_sum); };
  CHECK(same_number(logprob(got.logit), expected.logprob));
  REQUIRE(std::cmp_equal(got.num_top, expected.top.size()));
  for (std::size_t i = 0; i < expected.top.size(); ++i) {
    CHECK(got.top[i].token == expected.top[i].first.value);
    CHECK(logprob(got.top[i].logit) == expected.top[i].second);
  }
}

// Checks that the row has no NaN or infinity and an allowed token: others have no distribution.
bool has_distribution(std::span<const float> logits) {
  const auto is_spoiled = [](float logit) { return std::isnan(logit) || logit == kInfinity; };
  return std::ranges::none_of(logits, is_spoiled) &&
         std::ranges::any_of(logits, [](float logit) { return std::isfinite(logit); });
}

void compare_with_sampler(Backend& backend, const DrawScene& scene) {
  const Drawn got = drawn_on(backend, scene);
  const std::vector<SamplerState> states = states_of(scene);
  std::vector<float> logits = scene.logits;
  std::vector<SampleRow> rows = rows_of(scene, states, logits);
  Sampler(backend).sample(rows);
  std::size_t score = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    INFO("row " << i << " of a vocabulary of " << scene.vocab);
    const DrawnToken& expected = rows[i].drawn;
    REQUIRE((got.tokens[i].status == TokenDrawn::Status::kDrawn) == expected.token.has_value());
    if (expected.token) REQUIRE(got.tokens[i].token == expected.token->value);
    CHECK((got.tokens[i].status == TokenDrawn::Status::kNoNumbers) == expected.has_no_numbers);
    const auto raw = std::span(scene.logits)
                         .subspan(i * static_cast<std::size_t>(scene.vocab), static_cast<std::size_t>(scene.vocab));
    const bool is_scored = scene.cases[i].params.num_logprobs.has_value();
    if (is_scored && expected.logprob && has_distribution(raw)) check_score(got.scores[score], *expected.logprob);
    score += is_scored ? 1 : 0;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto raw = std::span(scene.logits)
                         .subspan(i * static_cast<std::size_t>(scene.vocab), static_cast<std::size_t>(scene.vocab));
    if (has_distribution(raw))
      check_score(got.scores[score + i], Sampler::logprob_of(raw, TokenId{0}, static_cast<std::int32_t>(i % 4)));
  }
}

std::unique_ptr<Backend> emulated(const EmulatedDeviceOptions& options) {
  return gpu::make_gpu_backend(std::make_unique<EmulatedDevice>(options), {.name = "cuda-emulated"});
}

}  // namespace

TEST_CASE("tokens drawn on the emulated GPU are the host Sampler's, with the logprobs of its distribution") {
  std::uint32_t number = 0;
  for (const std::int64_t vocab : {1, 2, 31, 64, 255, 256, 257, 1000, 2049, 5003, 32003}) {
    const auto backend = emulated({.seed = number % 3});
    for (int i = 0; i < (vocab < 5000 ? 5 : 1); ++i)
      compare_with_sampler(*backend, SceneMaker(++number).make(vocab, 20));
  }
}

TEST_CASE("tokens are drawn from a large vocabulary, flat or peaked", "[.long]") {
  for (std::uint32_t seed = 100; seed < 104; ++seed) {
    const auto backend = emulated({.seed = seed % 2});
    compare_with_sampler(*backend, SceneMaker(seed).make(151'937, 18));
  }
}

TEST_CASE("a token that the emulated GPU draws is the same alone and beside others, in every order of threads") {
  const DrawScene scene = SceneMaker(77).make(700, 19);
  const Drawn together = drawn_on(*emulated({}), scene);
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    const Drawn again = drawn_on(*emulated({.seed = seed}), scene);
    for (std::size_t i = 0; i < together.tokens.size(); ++i)
      CHECK(again.tokens[i].token == together.tokens[i].token);
  }
  for (std::size_t i = 0; i < scene.cases.size(); ++i) {
    DrawScene alone{.vocab = scene.vocab, .logits = {}, .cases = {scene.cases[i]}};
    const auto begin = scene.logits.begin() + static_cast<std::ptrdiff_t>(i) * scene.vocab;
    alone.logits.assign(begin, begin + scene.vocab);
    CHECK(drawn_on(*emulated({}), alone).tokens[0].token == together.tokens[i].token);
  }
}

TEST_CASE("each barrier of drawing is found where it is left out") {
  const DrawScene scene = SceneMaker(78).make(700, 40);
  const Drawn right = drawn_on(*emulated({}), scene);
  const auto is_right = [&](const Drawn& drawn) {
    return std::ranges::equal(drawn.tokens, right.tokens, {}, &TokenDrawn::token, &TokenDrawn::token);
  };
  for (int barrier = 0; barrier < 8; ++barrier) {
    INFO("barrier " << barrier);
    bool found = false;
    for (std::uint64_t seed = 1; seed < 8 && !found; ++seed) {
      const EmulatedDeviceOptions options{.seed = seed, .mutation = {gpu::Mutation::Kind::kSkipBlockBarrier, barrier}};
      found = death_of([&] {
                if (!is_right(drawn_on(*emulated(options), scene))) std::abort();
              }).signal != 0;
    }
    CHECK(found);
  }
}

}  // namespace quire::test
