// The engine over encoders: a text is computed whole, in one step, to the same bits alone or among others.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "core/model/tools/synth.h"
#include "tests/unit/engine/kv/tier_folders.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

std::filesystem::path synthetic(const TemporaryFolder& folder, const std::string& shape) {
  SynthSpec spec = *find_synth_shape(shape);
  spec.types = *find_synth_types("Q8_0");
  const std::filesystem::path path = folder.path() / (shape + ".gguf");
  write_synthetic_gguf(spec, path, {});
  return path;
}

Request text(std::vector<TokenId> tokens, Pooling pooling, PooledOutput output = PooledOutput::kVector) {
  Request request = request_of(std::move(tokens), 1);
  request.pooling = pooling;
  request.pooled_output = output;
  return request;
}

std::vector<float> embedded(ServedModel& served, Request request) {
  const auto sink = served.submit(std::move(request));
  served.run();
  REQUIRE(sink->finished());
  REQUIRE_FALSE(sink->choices[0].finishes[0].error);
  return sink->choices[0].embedding;
}

constexpr std::int64_t kBlocks = 200;

}  // namespace

TEST_CASE("an encoder's vector has the same bits alone, among 64 and in any order", "[engine][encoder]") {
  const TemporaryFolder folder;
  const auto path = synthetic(folder, "tiny-bert");
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = 300;  // several steps, each of several texts
  const auto request = [](int i) {
    constexpr Pooling kPoolings[] = {Pooling::kMean, Pooling::kCls, Pooling::kLast};
    return text(made_tokens(1 + 7 * i % 97, i, 256), kPoolings[i % 3]);
  };
  std::vector<std::vector<float>> alone;
  ServedModel single(path, kBlocks, options);
  for (int i = 0; i < 64; ++i)
    alone.push_back(embedded(single, request(i)));
  std::vector<int> order(64);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(5);
  for (int round = 0; round < 3; ++round) {
    ServedModel crowd(path, kBlocks, options);
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (const int i : order)
      sinks.push_back(crowd.submit(request(i)));
    crowd.run();
    for (std::size_t at = 0; at < order.size(); ++at)
      CHECK(sinks[at]->choices[0].embedding == alone[static_cast<std::size_t>(order[at])]);
    CHECK(crowd.engine->stats().num_blocks_used == 0);
    CHECK(crowd.engine->stats().num_blocks_cached == 0);
    CHECK(crowd.engine->stats().num_preemptions == 0);
    std::shuffle(order.begin(), order.end(), random);
  }
}

TEST_CASE("every word of a text changes the vector of its first one", "[engine][encoder]") {
  const TemporaryFolder folder;
  ServedModel served(synthetic(folder, "tiny-bert"), kBlocks, {});
  std::vector<TokenId> tokens = made_tokens(300, 1, 256);
  const auto before = embedded(served, text(tokens, Pooling::kCls));
  for (const std::size_t place : {std::size_t{1}, std::size_t{128}, std::size_t{299}}) {
    std::vector<TokenId> changed = tokens;
    changed[place].value = (changed[place].value + 1) % 256;
    CHECK(embedded(served, text(changed, Pooling::kCls)) != before);
  }
}

TEST_CASE("a text of an encoder may be longer than a step's budget, and not longer than its context",
          "[engine][encoder]") {
  const TemporaryFolder folder;
  const auto path = synthetic(folder, "tiny-bert");
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = 64;
  ServedModel narrow(path, kBlocks, options);
  ServedModel wide(path, kBlocks, {});
  const auto request = [] { return text(made_tokens(512, 2, 256), Pooling::kMean); };
  CHECK(embedded(narrow, request()) == embedded(wide, request()));
  const auto sink = narrow.submit(text(made_tokens(513, 2, 256), Pooling::kMean));
  narrow.run();
  REQUIRE(sink->choices[0].finishes.at(0).error);
  CHECK(sink->choices[0].finishes[0].error->code == "context_length_exceeded");
}

TEST_CASE("a model without a head refuses to generate, and serves other requests", "[engine][encoder]") {
  const TemporaryFolder folder;
  ServedModel served(synthetic(folder, "tiny-bert"), kBlocks, {});
  Request scores = text(made_tokens(9, 3, 256), Pooling::kLast, PooledOutput::kTokenLogprobs);
  scores.scored_tokens = {TokenId{1}};
  for (const Request& refused : {request_of(made_tokens(9, 3, 256), 5), scores}) {
    const auto sink = served.submit(refused);
    served.run();
    REQUIRE(sink->choices[0].finishes.at(0).error);
    CHECK(sink->choices[0].finishes[0].error->code == "unsupported_operation");
  }
  CHECK(embedded(served, text(made_tokens(9, 3, 256), Pooling::kMean)).size() == 64);
}

TEST_CASE("a classifier judges a pair by where its second text begins", "[engine][encoder]") {
  const TemporaryFolder folder;
  ServedModel served(synthetic(folder, "tiny-reranker"), kBlocks, {});
  const auto score = [&](std::int64_t second_text) {
    Request request = text(made_tokens(40, 4, 256), Pooling::kCls, PooledOutput::kLabels);
    request.second_text = second_text;
    return embedded(served, std::move(request));
  };
  CHECK(score(0).size() == 1);
  CHECK(score(20) == score(20));
  CHECK(score(20) != score(0));
  CHECK(score(20) != score(21));
}
