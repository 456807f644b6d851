// The engine over a really trained model and the CPU backend: greedy text against a 64-bit reference, and the same text
// from a crowded engine.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

std::vector<TokenId> ids_of(const nlohmann::json& array) {
  std::vector<TokenId> ids;
  for (const auto& id : array)
    ids.push_back(TokenId{id.get<std::int32_t>()});
  return ids;
}

constexpr const char* kReference = "weights/stories260K-gguf/greedy-f64-reference.dev.json.gz";

}  // namespace

TEST_CASE("greedy text of a real model is the 64-bit reference's, all prompts in one engine", "[engine][model]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  QUIRE_REQUIRE_MATERIAL(reference, kReference);
  const auto cases = nlohmann::json::parse(read_file(reference));
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = GENERATE(16, 512);
  ServedModel served(path, GENERATE(24, 200), options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const auto& each : cases) {
    sinks.push_back(served.submit(request_of(ids_of(each["prompt_ids"]), static_cast<int>(each["greedy_ids"].size()))));
  }
  served.run();
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    INFO(cases[i]["prompt"]);
    CHECK(sinks[i]->choices[0].tokens == ids_of(cases[i]["greedy_ids"]));
  }
}

TEST_CASE("64 streams of a real model in a pool too small for them say what each says alone", "[engine][model]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const auto stream = [](int i) {
    Request request = request_of(made_tokens(3 + 5 * (i % 20), i, 500), 80 + i % 32);
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    request.sampling.top_p = i % 2 == 0 ? 1.0F : 0.9F;
    return request;
  };
  std::vector<std::vector<TokenId>> alone;
  const KvDType dtype = GENERATE(KvDType::kF16, KvDType::kI4);
  EngineOptions uncached;
  uncached.kv_cache.dtype = dtype;
  uncached.kv_cache.enable_prefix_caching = false;
  ServedModel single(path, 100, uncached);
  for (int i = 0; i < 64; ++i) {
    const auto sink = single.submit(stream(i));
    single.run();
    alone.push_back(sink->choices[0].tokens);
  }
  EngineOptions options;
  options.kv_cache.dtype = dtype;
  options.scheduler.max_num_batched_tokens = GENERATE(16, 64, 512);
  ServedModel crowded(path, 60, options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < 64; ++i)
    sinks.push_back(crowded.submit(stream(i)));
  crowded.run();
  for (std::size_t i = 0; i < 64; ++i) {
    INFO("stream " << i);
    CHECK(sinks[i]->choices[0].tokens == alone[i]);
  }
  CHECK(crowded.engine->stats().num_preemptions > 0);
  CHECK(crowded.engine->stats().num_blocks_used == 0);
}
