// llama.cpp's samplers against a plain reading of their formulas, step by step over the whole vocabulary in double
// precision, and their draws by chi-square over fixed seeds.
#include "core/sampling/sampler_chain.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace sampler_chain {

constexpr double kNone = -std::numeric_limits<double>::infinity();
using Logits = std::vector<double>;  // by token; minus infinity: cannot be drawn
using Step = SamplerStep;

double best_of(const Logits& logits) {
  return *std::max_element(logits.begin(), logits.end());
}

std::vector<double> softmax(const Logits& logits) {
  std::vector<double> p;
  double sum = 0.0;
  for (const double logit : logits)
    sum += p.emplace_back(std::exp(logit - best_of(logits)));
  for (double& value : p)
    value /= sum;
  return p;
}

std::vector<std::size_t> ordered(const Logits& logits, const std::function<double(std::size_t)>& key) {
  std::vector<std::size_t> ids;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > kNone) ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return ids;
}

std::vector<std::size_t> best_first(const Logits& logits) {
  return ordered(logits, [&](std::size_t id) { return -logits[id]; });
}

void keep(Logits& logits, const std::set<std::size_t>& kept) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (kept.count(id) == 0) logits[id] = kNone;
  }
}

std::size_t least(const SamplingParams& params) {
  return static_cast<std::size_t>(std::max(1, params.min_keep));
}

void keep_mass(Logits& logits, const std::vector<std::size_t>& order, double mass, std::size_t at_least) {
  const std::vector<double> p = softmax(logits);
  std::set<std::size_t> kept;
  double sum = 0.0;
  for (const std::size_t id : order) {
    if (sum >= mass && kept.size() >= at_least) break;
    kept.insert(id);
    sum += p[id];
  }
  keep(logits, kept);
}

void n_sigma(Logits& logits, double n) {
  double sum = 0.0, squares = 0.0, count = 0.0;
  for (const double logit : logits)
    if (logit > kNone) sum += logit, count += 1.0;
  for (const double logit : logits)
    if (logit > kNone) squares += (logit - sum / count) * (logit - sum / count);
  const double lowest = best_of(logits) - n * std::sqrt(squares / count);
  for (double& logit : logits)
    logit = logit < lowest ? kNone : logit;
}

double dynamic_temperature(const Logits& logits, const SamplingParams& params) {
  double entropy = 0.0;
  for (const double p : softmax(logits))
    entropy -= p > 0.0 ? p * std::log(p) : 0.0;
  const double low =
      std::max(0.0, static_cast<double>(params.temperature) - static_cast<double>(params.dynatemp_range));
  const double high = static_cast<double>(params.temperature) + static_cast<double>(params.dynatemp_range);
  const double share = entropy / std::log(static_cast<double>(best_first(logits).size()));
  return low + (high - low) * std::pow(share, static_cast<double>(params.dynatemp_exponent));
}

void apply_step(Logits& logits, const SamplingParams& params, Step step, const std::vector<TokenId>& seen) {
  const std::vector<std::size_t> best = best_first(logits);
  if (best.size() < 2) return;
  switch (step) {
    case Step::kPenalties:
      for (std::size_t id = 0; id < logits.size(); ++id) {
        const bool is_seen = std::find(seen.begin(), seen.end(), TokenId{static_cast<int>(id)}) != seen.end();
        const auto repetition = static_cast<double>(params.repetition_penalty);
        if (is_seen) logits[id] = logits[id] > 0.0 ? logits[id] / repetition : logits[id] * repetition;
      }
      return;
    case Step::kDry: return;  // see sampler_reference_test
    case Step::kTopNSigma:
      if (params.top_n_sigma > 0.0F) n_sigma(logits, static_cast<double>(params.top_n_sigma));
      return;
    case Step::kTopK:
      if (params.top_k > 0 && std::cmp_less(params.top_k, best.size()))
        keep(logits, {best.begin(), best.begin() + params.top_k});
      return;
    case Step::kTypicalP: {
      if (params.typical_p >= 1.0F) return;
      const std::vector<double> p = softmax(logits);
      double entropy = 0.0;
      for (const double value : p)
        entropy -= value > 0.0 ? value * std::log(value) : 0.0;
      const auto order = ordered(logits, [&](std::size_t id) { return std::abs(-std::log(p[id]) - entropy); });
      return keep_mass(logits, order, static_cast<double>(params.typical_p), least(params));
    }
    case Step::kTopP:
      if (params.top_p < 1.0F) keep_mass(logits, best, static_cast<double>(params.top_p), least(params));
      return;
    case Step::kTopA: {
      if (params.top_a <= 0.0F) return;
      const std::vector<double> p = softmax(logits);
      const double most = *std::max_element(p.begin(), p.end());
      std::set<std::size_t> kept(best.begin(), best.begin() + static_cast<int>(std::min(least(params), best.size())));
      for (const std::size_t id : best) {
        if (p[id] >= static_cast<double>(params.top_a) * most * most) kept.insert(id);
      }
      return keep(logits, kept);
    }
    case Step::kMinP: {
      std::set<std::size_t> kept(best.begin(), best.begin() + static_cast<int>(std::min(least(params), best.size())));
      for (const std::size_t id : best) {
        if (std::exp(logits[id] - best_of(logits)) >= static_cast<double>(params.min_p)) kept.insert(id);
      }
      return keep(logits, kept);
    }
    case Step::kXtc: return;  // its own case below
    case Step::kTemperature: {
      const double temperature =
          params.dynatemp_range > 0.0F ? dynamic_temperature(logits, params) : static_cast<double>(params.temperature);
      for (double& logit : logits)
        logit /= temperature;
      return;
    }
  }
}

// The probability of each token, for a chain whose only random step is the draw.
std::vector<double> expected(const SamplingParams& params, const std::vector<float>& row,
                             const std::vector<TokenId>& seen, std::vector<Step> steps) {
  Logits logits(row.begin(), row.end());
  for (const Step step : steps)
    apply_step(logits, params, step, seen);
  return softmax(logits);
}

std::vector<Step> whole_order(bool temperature_last) {
  if (temperature_last) {
    return {Step::kPenalties, Step::kDry,  Step::kTopNSigma, Step::kTopK, Step::kTypicalP,
            Step::kTopP,      Step::kTopA, Step::kMinP,      Step::kXtc,  Step::kTemperature};
  }
  return {Step::kPenalties, Step::kDry,  Step::kTopNSigma, Step::kTemperature, Step::kTopK,
          Step::kTypicalP,  Step::kTopP, Step::kTopA,      Step::kMinP,        Step::kXtc};
}

// Draws once; `state` is the sequence's own.
DrawnToken draw(SamplerState& state, std::vector<float> row, const std::vector<TokenId>& tokens) {
  FakeBackend backend;
  Sampler sampler(backend);
  std::array<SampleRow, 1> rows{SampleRow{.logits = row,
                                          .state = &state,
                                          .tokens = tokens,
                                          .num_prompt_tokens = static_cast<std::int64_t>(tokens.size()),
                                          .mask = {}}};
  sampler.sample(rows);
  return rows[0].drawn;
}

constexpr int kDraws = 3000;

std::vector<int> draws(const SamplingParams& params, const std::vector<float>& row, const std::vector<TokenId>& seen) {
  std::vector<int> counts(row.size());
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    SamplerState state(params, seen, {}, static_cast<std::int64_t>(row.size()), seed, 0);
    ++counts[static_cast<std::size_t>(draw(state, row, seen).token.value().value)];
  }
  return counts;
}

// Impossible tokens are never drawn, the others by their shares: chi-square within six standard deviations.
void check_draws(const std::vector<double>& p, const std::vector<int>& counts) {
  double square = 0.0, rare_expected = 0.0, rare_count = 0.0, freedom = -1.0;
  for (std::size_t id = 0; id < p.size(); ++id) {
    const double wanted = p[id] * kDraws;
    if (p[id] < 1e-12) CHECK(counts[id] == 0);
    if (wanted < 8.0) {
      rare_expected += wanted;
      rare_count += counts[id];
      continue;
    }
    square += (counts[id] - wanted) * (counts[id] - wanted) / wanted;
    freedom += 1.0;
  }
  if (rare_expected >= 8.0) {
    square += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
    freedom += 1.0;
  }
  if (freedom >= 1.0) CHECK(square < freedom + 6.0 * std::sqrt(2.0 * freedom) + 6.0);
}

struct Random {
  std::mt19937 engine;
  int below(int bound) { return static_cast<int>(engine() % static_cast<std::uint32_t>(bound)); }
  float real(double low, double high) {
    return static_cast<float>(low + (high - low) * static_cast<double>(engine()) * 0x1p-32);
  }
  std::vector<float> row(int size) {
    std::vector<float> logits;
    for (int i = 0; i < size; ++i)
      logits.push_back(real(-4.0, 4.0));
    return logits;
  }
};

SamplingParams random_params(Random& random) {
  SamplingParams params;
  params.temperature = random.real(0.4, 1.8);
  params.temperature_last = random.below(2) == 0;
  if (random.below(2) == 0) params.top_n_sigma = random.real(0.3, 2.0);
  if (random.below(2) == 0) params.top_k = 2 + random.below(20);
  if (random.below(2) == 0) params.top_p = random.real(0.3, 1.0);
  if (random.below(3) == 0) params.min_p = random.real(0.01, 0.4);
  if (random.below(3) == 0) params.typical_p = random.real(0.3, 1.0);
  if (random.below(3) == 0) params.top_a = random.real(0.05, 1.0);
  if (random.below(2) == 0) params.min_keep = 2 + random.below(6);
  if (random.below(2) == 0) params.repetition_penalty = random.real(0.8, 1.6);
  if (random.below(2) == 0) {
    params.dynatemp_range = random.real(0.1, 1.0);
    params.dynatemp_exponent = random.real(0.5, 2.0);
  }
  return params;
}

TEST_CASE("samplers in any order do what their formulas say", "[sampler]") {
  Random random{std::mt19937(3)};
  for (int round = 0; round < 60; ++round) {
    INFO("round " << round);
    SamplingParams params = random_params(random);
    std::vector<Step> steps = whole_order(params.temperature_last);
    if (random.below(2) == 0) {
      std::shuffle(steps.begin(), steps.end(), random.engine);
      steps.resize(static_cast<std::size_t>(1 + random.below(static_cast<int>(steps.size()))));
      params.order = steps;
    }
    const std::vector<float> row = random.row(24);
    const std::vector<TokenId> seen = tokens_of({1, 2, 3});
    check_draws(expected(params, row, seen, steps), draws(params, row, seen));
  }
}

TEST_CASE("top_n_sigma alone gives what it gives in the chain", "[sampler]") {
  Random random{std::mt19937(4)};
  for (int round = 0; round < 20; ++round) {
    SamplingParams params;
    params.temperature = random.real(0.5, 1.5);
    params.top_n_sigma = random.real(0.2, 2.0);
    REQUIRE_FALSE(params.is_chained());
    const std::vector<float> row = random.row(30);
    check_draws(expected(params, row, {}, whole_order(false)), draws(params, row, tokens_of({0})));
  }
}

TEST_CASE("top_a keeps what its formula says, alone and after other filters", "[sampler]") {
  Random random{std::mt19937(9)};
  for (int round = 0; round < 40; ++round) {
    INFO("round " << round);
    SamplingParams params;
    params.temperature = random.real(0.5, 1.5);
    params.temperature_last = round % 2 == 0;
    params.top_a = random.real(0.05, 1.0);
    if (round % 3 == 0) params.top_k = 3 + random.below(8);
    if (round % 4 == 0) params.top_p = random.real(0.6, 1.0);
    const std::vector<float> row = random.row(30);
    check_draws(expected(params, row, {}, whole_order(params.temperature_last)), draws(params, row, tokens_of({0})));
  }
}

TEST_CASE("min_keep holds every filter off the last tokens", "[sampler]") {
  const std::vector<float> row{4.0F, 3.0F, 2.0F, 1.0F, 0.0F};
  const auto num_kept = [&](const std::function<void(SamplingParams&)>& set) {
    SamplingParams params;
    params.temperature = 3.0F;
    params.min_keep = 3;
    set(params);
    const std::vector<int> counts = draws(params, row, tokens_of({0}));
    return std::count_if(counts.begin(), counts.end(), [](int count) { return count > 0; });
  };
  CHECK(num_kept([](SamplingParams& params) { params.top_p = 0.01F; }) == 3);
  CHECK(num_kept([](SamplingParams& params) { params.min_p = 0.99F; }) == 3);
  CHECK(num_kept([](SamplingParams& params) {
          params.temperature = 1.0F;
          params.top_a = 1.0F;  // the formula alone would leave one
        }) == 3);
  CHECK(num_kept([](SamplingParams& params) { params.typical_p = 0.01F; }) == 3);
  // XTC would leave two of the five.
  const auto xtc = [](SamplingParams& params) {
    params.xtc_probability = 1.0F;
    params.xtc_threshold = 0.12F;
  };
  CHECK(num_kept(xtc) == 5);
  CHECK(num_kept([&](SamplingParams& params) {
          xtc(params);
          params.min_keep = 2;
        }) == 2);
}

TEST_CASE("mirostat's second version leaves what is no more surprising than its bound, which follows the draws",
          "[sampler]") {
  Random random{std::mt19937(5)};
  SamplingParams params;
  params.temperature = 0.9F;
  params.top_k = 1;  // filters have no place beside it
  params.mirostat = {.version = 2, .tau = 2.0F, .eta = 0.3F};
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<TokenId> tokens = tokens_of({0});
    SamplerState state(params, tokens, {}, 40, seed, 0);
    double bound = 2.0 * 2.0;
    for (int step = 0; step < 12; ++step) {
      const std::vector<float> row = random.row(40);
      const DrawnToken drawn = draw(state, row, tokens);
      Logits logits(row.begin(), row.end());
      for (double& logit : logits)
        logit /= 0.9;
      const std::vector<double> p = softmax(logits);
      const auto id = static_cast<std::size_t>(drawn.token->value);
      double kept = 0.0;
      for (const double value : p)
        kept += -std::log2(value) <= bound ? value : 0.0;
      const bool is_best = p[id] == *std::max_element(p.begin(), p.end());
      CHECK((is_best || -std::log2(p[id]) <= bound + 1e-4));
      const double surprise = kept > 0.0 ? -std::log2(p[id] / kept) : 0.0;
      REQUIRE(static_cast<double>(drawn.observed.value()) == Approx(surprise).margin(1e-3));
      state.observe(*drawn.observed);
      state.append(*drawn.token);
      tokens.push_back(*drawn.token);
      bound -= static_cast<double>(0.3F) * (surprise - 2.0);
    }
  }
}

TEST_CASE("mirostat's first version draws from as many tokens as its estimate says", "[sampler]") {
  Random random{std::mt19937(6)};
  SamplingParams params;
  params.mirostat = {.version = 1, .tau = 1.5F, .eta = 0.1F};
  for (int round = 0; round < 30; ++round) {
    const std::vector<float> row = random.row(200);
    const Logits logits(row.begin(), row.end());
    const std::vector<std::size_t> best = best_first(logits);
    double products = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < 99; ++i) {
      const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
      products += t * (logits[best[i]] - logits[best[i + 1]]);
      squares += t * t;
    }
    const double s = products / squares;
    const double epsilon = s - 1.0;
    const double k = std::pow(epsilon * std::exp2(3.0) / (1.0 - std::pow(200.0, -epsilon)), 1.0 / s);
    const auto count = static_cast<std::size_t>(std::max(1.0, k));
    Logits cut = logits;
    keep(cut, {best.begin(), best.begin() + static_cast<int>(std::min<std::size_t>(count, 200))});
    check_draws(softmax(cut), draws(params, row, tokens_of({0})));
  }
}

TEST_CASE("mirostat keeps the mean surprise near what is asked for", "[sampler]") {
  for (const int version : {1, 2}) {
    for (const float tau : {1.0F, 2.5F}) {
      Random random{std::mt19937(7)};
      SamplingParams params;
      params.mirostat = {.version = version, .tau = tau, .eta = 0.2F};
      std::vector<TokenId> tokens = tokens_of({0});
      SamplerState state(params, tokens, {}, 100, 1, 0);
      double sum = 0.0;
      constexpr int kSteps = 1500;
      for (int step = 0; step < kSteps; ++step) {
        const DrawnToken drawn = draw(state, random.row(100), tokens);
        state.observe(drawn.observed.value());
        tokens.back() = *drawn.token;
        tokens.push_back(*drawn.token);
        sum += static_cast<double>(*drawn.observed);
      }
      CHECK(sum / kSteps == Approx(static_cast<double>(tau)).margin(0.2));
    }
  }
}

TEST_CASE("adaptive-p weighs by the distance to its target, corrected by what was drawn", "[sampler]") {
  Random random{std::mt19937(8)};
  SamplingParams params;
  params.adaptive = {.target = 0.3F, .decay = 0.8F};
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> row = random.row(12);
    const std::vector<double> p = softmax(Logits(row.begin(), row.end()));
    const double before = round % 2 == 0 ? -1.0 : 0.9;  // probability of the token drawn before; -1: none
    const double weight = 0.3 / (1.0 - 0.8), total = 1.0 / (1.0 - 0.8);
    const double mean = before < 0.0 ? weight / total : (before + 0.8 * weight) / (1.0 + 0.8 * total);
    const double target = std::clamp(2.0 * 0.3 - mean, 0.0, 1.0);
    Logits adapted;
    for (const double value : p) {
      const double distance = std::abs(value - target) / 0.3;
      adapted.push_back(5.0 - 10.0 * distance * distance / (1.0 + distance));
    }
    std::vector<int> counts(row.size());
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
      SamplerState state(params, tokens_of({0}), {}, 12, seed, 0);
      if (before >= 0.0) state.observe(static_cast<float>(before));
      const DrawnToken drawn = draw(state, row, tokens_of({0}));
      const auto id = static_cast<std::size_t>(drawn.token->value);
      REQUIRE(static_cast<double>(drawn.observed.value()) == Approx(p[id]).margin(1e-5));
      ++counts[id];
    }
    check_draws(softmax(adapted), counts);
  }
}

TEST_CASE("a token that is forced leaves the samplers that follow the draws as they were", "[sampler]") {
  std::vector<float> row(8, -std::numeric_limits<float>::infinity());
  row[5] = 1.0F;
  for (const bool adaptive : {false, true}) {
    SamplingParams params;
    if (adaptive) params.adaptive.target = 0.4F;
    if (!adaptive) params.mirostat.version = 2;
    SamplerState state(params, tokens_of({0}), {}, 8, 1, 0);
    const DrawnToken drawn = draw(state, row, tokens_of({0}));
    CHECK(drawn.token == TokenId{5});
    CHECK_FALSE(drawn.observed);
  }
}

TEST_CASE("the chain takes NaN, infinite logits and rows without any allowed token", "[sampler]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  SamplingParams params;
  params.min_keep = 2;
  const auto drawn = [&](std::vector<float> row) {
    SamplerState state(params, tokens_of({0}), {}, static_cast<std::int64_t>(row.size()), 1, 0);
    return draw(state, std::move(row), tokens_of({0}));
  };
  CHECK(drawn({1.0F, kInfinity, std::nanf("")}).token == TokenId{1});
  CHECK(drawn({-kInfinity, std::nanf(""), 0.0F}).token == TokenId{2});
  CHECK_FALSE(drawn({-kInfinity, -kInfinity}).token);
  CHECK_FALSE(drawn({-kInfinity, -kInfinity}).has_no_numbers);
  CHECK(drawn({std::nanf(""), std::nanf("")}).has_no_numbers);
}

}  // namespace sampler_chain
