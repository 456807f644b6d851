// The engine over models whose layers see a window: they keep no more than that, and every text stays the same.
#include <catch2/catch.hpp>

#include "core/model/layers/checkpoint.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kWindowed[] = {"gemma2",  "gemma3", "gemma4", "gemma4-moe", "gpt-oss",
                                     "cohere2", "olmo3",  "mimo2",  "exaone4-swa"};
constexpr int kWindowedStreams = 10;

// Some share a beginning longer than a window, others grow into theirs.
Request windowed_stream(int i) {
  const int num_alike = i % 3 == 0 ? 60 : 4;
  Request request =
      request_of(joined(made_tokens(num_alike, i % 3, 60), made_tokens(1 + 13 * (i % 5), i, 60)), 50 + i % 7);
  request.num_choices = i == 4 ? 3 : 1;
  request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
  request.sampling.seed = static_cast<std::uint64_t>(i);
  if (i == 7) {
    request = request_of(request.prompt, 0);
    request.pooling = Pooling::kMean;
  }
  return request;
}

EngineOptions alone() {
  EngineOptions options;
  options.kv_cache.enable_prefix_caching = false;
  options.scheduler.max_num_seqs = 4;
  return options;
}

std::int64_t least_parts(const Model& model) {
  return WindowPool::least_parts(model.kv_split().window, 16);
}

void check_same(const KeepingSink& got, const KeepingSink& expected) {
  for (std::size_t i = 0; i < expected.choices.size(); ++i) {
    CHECK(got.choices[i].tokens == expected.choices[i].tokens);
    CHECK(got.choices[i].embedding == expected.choices[i].embedding);
  }
}

}  // namespace

TEST_CASE("layers that see a window keep it alone, and say in a crowd what they say with all tokens kept",
          "[engine][model][window]") {
  const KvDType dtype = GENERATE(KvDType::kF16, KvDType::kI4);
  std::uint64_t num_preemptions = 0;
  for (const std::string family : kWindowed) {
    QUIRE_REQUIRE_MATERIAL(path, "architectures/given/" + family + "/model.gguf");
    INFO(family << ", type " << static_cast<int>(dtype));
    EngineOptions by_itself = alone();
    by_itself.kv_cache.dtype = dtype;
    ServedModel single(path, 60, by_itself);
    REQUIRE(single.model->kv_split().window > 0);
    std::vector<std::shared_ptr<KeepingSink>> expected;
    for (int i = 0; i < kWindowedStreams; ++i) {
      expected.push_back(single.submit(windowed_stream(i)));
      single.run();
    }
    EngineOptions options;
    options.kv_cache.dtype = dtype;
    options.scheduler.max_num_seqs = 6;
    options.scheduler.max_num_batched_tokens = 48;  // prompts are cut
    constexpr std::int64_t kBlocks = 20;
    options.num_window_parts = std::min(kBlocks, least_parts(*single.model) + 14);
    ServedModel crowded(path, kBlocks, options);
    for (int round = 0; round < 2; ++round) {  // the second one finds prefixes
      std::vector<std::shared_ptr<KeepingSink>> sinks;
      for (int i = 0; i < kWindowedStreams; ++i)
        sinks.push_back(crowded.submit(windowed_stream(i)));
      crowded.run();
      for (std::size_t i = 0; i < sinks.size(); ++i) {
        INFO("round " << round << ", stream " << i);
        check_same(*sinks[i], *expected[i]);
      }
    }
    const EngineStats stats = crowded.engine->stats();
    CHECK(stats.prefix_cache_hits > 0);
    num_preemptions += stats.num_preemptions;
    CHECK(stats.num_blocks_used == 0);
    CHECK(stats.num_parts_used == 0);
  }
  CHECK(num_preemptions > 0);
}

TEST_CASE("a conversation with a windowed model continues from its window, to the same text",
          "[engine][model][window]") {
  for (const std::string family : {"gemma3", "gpt-oss", "olmo3"}) {
    QUIRE_REQUIRE_MATERIAL(path, "architectures/given/" + family + "/model.gguf");
    INFO(family);
    ServedModel fresh(path, 100, alone());
    EngineOptions options;
    options.num_window_parts = least_parts(*fresh.model) + 6;
    ServedModel served(path, 100, options);
    const auto ask = [](ServedModel& model, const std::vector<TokenId>& prompt) {
      const auto sink = model.submit(request_of(prompt, 20));
      model.run();
      return sink;
    };
    std::vector<TokenId> history = made_tokens(200, 1, 60);
    for (int turn = 0; turn < 3; ++turn) {
      INFO("turn " << turn);
      const auto answer = ask(served, history);
      const auto expected = ask(fresh, history);
      check_same(*answer, *expected);
      const std::int64_t num_cached = answer->choices[0].finishes.at(0).num_cached_tokens;
      // The last token of the answer before was not computed.
      if (turn > 0) CHECK(num_cached >= static_cast<std::int64_t>(history.size()) - 10);
      history = joined(joined(history, expected->choices[0].tokens), made_tokens(9, 10 + turn, 60));
    }
  }
}

TEST_CASE("a model of windows and recurrent states says in a crowd what it says alone, with a tier below",
          "[engine][model][window][state]") {
  const bool has_full = GENERATE(true, false);  // without, blocks have no bytes of their own
  for (const std::string family : {"lfm2", "falcon-h1"}) {
    QUIRE_REQUIRE_MATERIAL(path, "architectures/given/" + family + "/model.gguf");
    INFO(family << ", layers that see all: " << has_full);
    Checkpoint checkpoint = read_gguf_checkpoint(path);
    bool is_next = true;
    for (LayerSpec& layer : checkpoint.spec.layers) {
      if (layer.mixer != Mixer::kAttention && layer.mixer != Mixer::kAttentionAndMamba2) continue;
      if (is_next || !has_full) layer.attention.window = 24;
      is_next = !is_next;
    }
    const auto loaded = std::make_shared<const LoadedModel>(std::move(checkpoint));
    REQUIRE(loaded->info().kv_split.window == 24);
    REQUIRE(loaded->info().state_floats > 0);
    ServedModel single(loaded, 60, alone());
    EngineOptions options;
    options.kv_cache.host_tier_bytes = 4 << 20;
    options.scheduler.max_num_seqs = 6;
    options.scheduler.max_num_batched_tokens = 48;
    options.num_states = 8;
    constexpr std::int64_t kBlocks = 20;
    options.num_window_parts = std::min(kBlocks, least_parts(*single.model) + 10);
    ServedModel crowded(loaded, kBlocks, options);
    std::vector<Request> requests;
    for (int i = 0; i < kWindowedStreams; ++i)
      requests.push_back(windowed_stream(i));
    for (int round = 0; round < 2; ++round) {  // the second one continues
      std::vector<std::shared_ptr<KeepingSink>> sinks;
      for (const Request& request : requests)
        sinks.push_back(crowded.submit(request));
      crowded.run();
      for (std::size_t i = 0; i < sinks.size(); ++i) {
        INFO("round " << round << ", stream " << i);
        const auto expected = single.submit(requests[i]);
        single.run();
        check_same(*sinks[i], *expected);
        requests[i].prompt = joined(requests[i].prompt, expected->choices[0].tokens);
      }
    }
    const EngineStats stats = crowded.engine->stats();
    CHECK(stats.prefix_cache_hits > 0);
    CHECK(stats.num_blocks_used == 0);
    CHECK(stats.num_parts_used == 0);
  }
}
