// The cost of sampling one row of a large vocabulary by the common settings, on one thread: microseconds.
#include <cstdio>
#include <vector>

#include "core/request/request.h"
#include "core/sampling/philox.h"
#include "core/sampling/sampler.h"
#include "tests/support/fake_model.h"

namespace {

using quire::Clock;

constexpr std::size_t kVocab = 151'936;
constexpr int kRounds = 50;

void measure(const char* name, const quire::SamplingParams& params) {
  quire::test::FakeBackend backend;
  quire::Sampler sampler(backend);
  std::vector<float> original(kVocab);
  // Shape of a language model's logits: a wide bell, and a few tokens far above it.
  for (std::size_t i = 0; i < kVocab; ++i) {
    float bell = -6.0F;
    for (std::uint64_t k = 0; k < 12; ++k) {
      bell += static_cast<float>(quire::uniform(k, 0, static_cast<std::int64_t>(i), quire::Draw::kToken));
    }
    original[i] = 2.5F * bell;
  }
  for (std::size_t i = 0; i < 30; ++i)
    original[i * 5003] = 18.0F - 0.3F * static_cast<float>(i);
  const std::vector<quire::TokenId> tokens(100, quire::TokenId{5});
  quire::SamplerState state(params, tokens, {}, kVocab, 1, 0);
  std::vector<float> logits;
  double total = 0.0;
  for (int round = 0; round < kRounds; ++round) {
    logits = original;
    std::vector<quire::SampleRow> rows{
        {.logits = logits, .state = &state, .tokens = tokens, .num_prompt_tokens = 100, .mask = {}}};
    const auto began = Clock::now();
    sampler.sample(rows);
    total += std::chrono::duration<double, std::micro>(Clock::now() - began).count();
  }
  std::printf("%-28s %8.1f us\n", name, total / kRounds);
}

}  // namespace

int main() {
  quire::SamplingParams params;
  params.temperature = 0.0F;
  measure("greedy", params);
  params.temperature = 1.0F;
  measure("temperature 1", params);
  params.top_p = 0.9F;
  measure("top_p 0.9", params);
  params.top_k = 40;
  measure("top_k 40, top_p 0.9", params);
  params = {};
  params.min_p = 0.05F;
  measure("min_p 0.05", params);
  params = {};
  params.temperature = 0.0F;
  params.num_logprobs = 5;
  measure("greedy, 5 logprobs", params);
}
