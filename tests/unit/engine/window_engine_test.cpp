// The engine over a model whose layers see a window: the tokens kept, and texts that do not depend on it. The model's
// every output depends on each token of its sequence, and once more on those in the window.
#include <catch2/catch.hpp>

#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kWindow = 12;
constexpr std::int64_t kLeast = WindowPool::least_parts(kWindow, 4);

HarnessOptions windowed(std::int64_t num_blocks, std::int64_t num_parts) {
  HarnessOptions options{.num_blocks = num_blocks, .block_size = 4, .window = kWindow};
  options.engine.num_window_parts = num_parts;
  options.engine.scheduler.max_num_seqs = 8;
  options.engine.scheduler.max_num_batched_tokens = 16;
  return options;
}

HarnessOptions roomy() {
  HarnessOptions options{.num_blocks = 1000, .block_size = 4, .window = kWindow};
  options.engine.kv_cache.enable_prefix_caching = false;
  return options;
}

std::vector<TokenId> text_alone(const std::vector<TokenId>& prompt, int max_tokens) {
  Harness harness(roomy());
  const auto sink = harness.submit(request_of(prompt, max_tokens));
  harness.run();
  return sink->choices[0].tokens;
}

}  // namespace

TEST_CASE("a sequence far longer than the window holds the window and a chunk", "[engine][window]") {
  Harness harness(windowed(200, 40));
  const std::vector<TokenId> prompt = made_tokens(500, 1);
  const auto sink = harness.submit(request_of(prompt, 200));
  harness.run();
  CHECK(sink->choices[0].tokens == text_alone(prompt, 200));
  const EngineStats stats = harness.engine.stats();
  CHECK(stats.num_blocks_used_peak >= 174);
  CHECK(stats.num_parts_used_peak <= (kWindow + 16) / 4 + 2);
  CHECK(stats.num_parts == 40);
  CHECK(stats.num_parts_used == 0);
  CHECK(stats.num_preemptions == 0);
}

TEST_CASE("windows make room for sequences that would not run together without", "[engine][window]") {
  // The same bytes for layers with a window: 45 parts, instead of one for each of 160 blocks.
  Harness harness(windowed(160, 45));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < 4; ++i)
    sinks.push_back(harness.submit(request_of(made_tokens(100, i), 40)));
  std::int64_t most_running = 0;
  while (harness.step())
    most_running = std::max(most_running, harness.engine.stats().num_running);
  CHECK(most_running == 4);
  CHECK(harness.engine.stats().num_preemptions == 0);
  for (int i = 0; i < 4; ++i)
    CHECK(sinks[static_cast<std::size_t>(i)]->choices[0].tokens == text_alone(made_tokens(100, i), 40));
}

TEST_CASE("the next turn of a conversation computes its new tokens alone", "[engine][window]") {
  Harness harness(windowed(200, 40));
  std::vector<TokenId> history = made_tokens(300, 1);
  for (int turn = 0; turn < 4; ++turn) {
    const auto sink = harness.submit(request_of(history, 30));
    const std::uint64_t before = harness.engine.stats().computed_tokens;
    harness.run();
    CHECK(sink->choices[0].tokens == text_alone(history, 30));
    // The last token drawn was not computed, and what was found ends before the last token of the prompt.
    const std::uint64_t num_new = turn == 0 ? 300 : 11 + 1;
    CHECK(harness.engine.stats().computed_tokens - before <= num_new + 29);
    history = joined(joined(history, sink->choices[0].tokens), made_tokens(11, 10 + turn));
  }
}

TEST_CASE("a beginning that many share is found after all parts of others were used", "[engine][window]") {
  Harness harness(windowed(400, 40));
  const std::vector<TokenId> rules = made_tokens(100, 1);
  harness.submit(request_of(joined(rules, made_tokens(30, 2)), 5));
  harness.run();
  harness.submit(request_of(joined(rules, made_tokens(30, 3)), 5));  // found: from now on it is worth keeping
  harness.run();
  CHECK(harness.engine.stats().prefix_cache_hits >= 100);
  harness.submit(request_of(made_tokens(600, 4), 5));
  harness.run();
  const std::uint64_t before = harness.engine.stats().prefix_cache_hits;
  harness.submit(request_of(joined(rules, made_tokens(30, 5)), 5));
  harness.run();
  CHECK(harness.engine.stats().prefix_cache_hits - before >= 100);
}

TEST_CASE("texts do not depend on the room for windows", "[engine][window]") {
  const std::int64_t num_parts = GENERATE(as<std::int64_t>{}, kLeast, kLeast + 9, 40);
  const bool prefix_caching = GENERATE(true, false);
  HarnessOptions options = windowed(120, num_parts);
  options.engine.kv_cache.enable_prefix_caching = prefix_caching;
  options.deferred_seed = GENERATE(std::optional<std::uint32_t>{}, std::optional<std::uint32_t>{7});
  Harness harness(options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  const auto made = [](int i) {
    Request request = request_of(joined(made_tokens(40, i % 3), made_tokens(1 + 9 * (i % 5), i)), 60 + i % 7);
    request.num_choices = i == 4 ? 3 : 1;
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    if (i % 7 == 6) {
      request = request_of(request.prompt, 0);
      request.pooling = Pooling::kMean;
    }
    return request;
  };
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 14; ++i)
      sinks.push_back(harness.submit(made(i)));
    harness.run();
  }
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    INFO("request " << i);
    Harness alone(roomy());
    const auto expected = alone.submit(made(static_cast<int>(i % 14)));
    alone.run();
    for (std::size_t choice = 0; choice < expected->choices.size(); ++choice) {
      CHECK(sinks[i]->choices[choice].tokens == expected->choices[choice].tokens);
      CHECK(sinks[i]->choices[choice].embedding == expected->choices[choice].embedding);
    }
  }
  const EngineStats stats = harness.engine.stats();
  CHECK((stats.prefix_cache_hits > 0) == prefix_caching);
  CHECK(stats.num_parts_used == 0);
}

TEST_CASE("streams that grow into their windows give way to the more important ones", "[engine][window]") {
  HarnessOptions options = windowed(200, kLeast);
  options.deferred_seed = GENERATE(std::optional<std::uint32_t>{}, std::optional<std::uint32_t>{5});
  Harness harness(options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < 8; ++i)
    sinks.push_back(harness.submit(request_of(made_tokens(3, i), 60)));
  harness.run();
  CHECK(harness.engine.stats().num_preemptions > 0);
  CHECK(harness.engine.stats().num_blocks_used_peak < 200);
  for (int i = 0; i < 8; ++i)
    CHECK(sinks[static_cast<std::size_t>(i)]->choices[0].tokens == text_alone(made_tokens(3, i), 60));
}

TEST_CASE("an abort gives parts back at once", "[engine][window]") {
  Harness harness(windowed(120, 40));
  harness.submit(request_of(made_tokens(100, 1), 200));
  const auto other = harness.submit(request_of(made_tokens(50, 2), 60));
  for (int i = 0; i < 12; ++i)
    harness.step();
  CHECK(harness.engine.stats().num_parts_used > 5);
  harness.engine.queue().abort("r1");
  harness.run();
  CHECK(harness.engine.stats().num_parts_used == 0);
  CHECK(other->choices[0].tokens == text_alone(made_tokens(50, 2), 60));
}

TEST_CASE("a pool of few parts serves one sequence after another", "[engine][window]") {
  HarnessOptions options = windowed(300, kLeast);
  options.engine.scheduler.max_num_batched_tokens = 256;  // more than there are parts for
  Harness harness(options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < 5; ++i)
    sinks.push_back(harness.submit(request_of(made_tokens(200, i), 50)));
  harness.run();
  for (int i = 0; i < 5; ++i)
    CHECK(sinks[static_cast<std::size_t>(i)]->choices[0].tokens == text_alone(made_tokens(200, i), 50));
}

TEST_CASE("a preempted sequence finds its window in the host tier", "[engine][window][tier]") {
  for (const bool swaps : {false, true}) {
    HarnessOptions options = windowed(60, 24);
    options.engine.kv_cache.host_tier_bytes = 1 << 20;
    options.engine.scheduler.preemption = swaps ? Preemption::kSwap : Preemption::kRecompute;
    options.deferred_seed = GENERATE(std::optional<std::uint32_t>{}, std::optional<std::uint32_t>{3});
    Harness harness(options);
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (int i = 0; i < 10; ++i)
      sinks.push_back(harness.submit(request_of(made_tokens(30 + i, i), 60)));
    harness.run();
    for (int i = 0; i < 10; ++i)
      CHECK(sinks[static_cast<std::size_t>(i)]->choices[0].tokens == text_alone(made_tokens(30 + i, i), 60));
    const EngineStats stats = harness.engine.stats();
    CHECK(stats.num_preemptions > 0);
    CHECK(stats.num_swaps == (swaps ? stats.num_preemptions : 0));
    CHECK((stats.num_blocks_restored > 0) == swaps);
    CHECK(stats.num_parts_used == 0);
  }
}

TEST_CASE("a conversation whose parts and blocks others took comes back from the host tier", "[engine][window][tier]") {
  HarnessOptions options = windowed(120, 30);
  options.engine.kv_cache.host_tier_bytes = 1 << 20;
  Harness harness(options);
  const std::vector<TokenId> prompt = made_tokens(200, 1);
  const auto first = harness.submit(request_of(prompt, 20));
  harness.run();
  for (int i = 2; i < 6; ++i)
    harness.submit(request_of(made_tokens(300, i), 5));
  harness.run();
  const std::vector<TokenId> next = joined(joined(prompt, first->choices[0].tokens), made_tokens(9, 7));
  const auto second = harness.submit(request_of(next, 20));
  harness.run();
  CHECK(second->choices[0].tokens == text_alone(next, 20));
  CHECK(harness.engine.stats().num_blocks_restored > 40);
  CHECK(second->choices[0].finishes.at(0).num_cached_tokens >= 160);
}
