#include "core/kv/tiers/host_tier.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/unit/engine/kv/tiered_cache.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("the host tier keeps within its bound, chains going from their ends", "[tier]") {
  HostTier tier(400);  // four blocks
  std::vector<PrefixNode> left;
  const auto put = [&](int node, int parent) {
    const auto payload = std::make_shared<const std::vector<std::byte>>(84, static_cast<std::byte>(node));
    return tier.put(PrefixNode{node}, PrefixNode{parent}, 100, payload, [&](PrefixNode each) { left.push_back(each); });
  };
  constexpr int kRoot = -1;
  REQUIRE(put(1, kRoot));
  REQUIRE(put(2, 1));
  REQUIRE(put(3, kRoot));
  CHECK(tier.payload(PrefixNode{2})->at(0) == std::byte{2});
  REQUIRE(put(4, 3));
  REQUIRE(put(5, 3));
  CHECK(tier.num_bytes() == 400);
  CHECK(left == std::vector<PrefixNode>{PrefixNode{2}});  // the oldest that nothing follows; now nothing follows 1
  tier.touch(PrefixNode{1});
  REQUIRE(put(6, 3));
  CHECK(left.back() == PrefixNode{4});
  CHECK(tier.contains(PrefixNode{3}));
  HostTier tiny(50);
  CHECK_FALSE(tiny.put(PrefixNode{1}, PrefixNode{kRoot}, 100, nullptr, [](PrefixNode) {}));
}

TEST_CASE("a node may be in a tier before the one it follows", "[tier]") {
  TierOrder order;
  order.add(PrefixNode{2}, PrefixNode{1}, 10, true);  // the pool gives up the last of a chain first
  order.add(PrefixNode{1}, PrefixNode{-1}, 10, true);
  CHECK(order.next_to_leave() == PrefixNode{2});
  order.remove(PrefixNode{2});
  CHECK(order.next_to_leave() == PrefixNode{1});
  order.add(PrefixNode{3}, PrefixNode{1}, 10, false);
  CHECK(order.next_to_leave() == kNoNode);  // node 1 has a follower, node 3 is not there yet
  order.set_there(PrefixNode{3});
  CHECK(order.next_to_leave() == PrefixNode{3});
  order.remove(PrefixNode{1});
  order.remove(PrefixNode{3});
  CHECK(order.size() == 0);
  CHECK(order.num_bytes() == 0);
}

// A cache of 24 blocks over a host tier of fewer.
struct SmallHost : SmallCache {
  explicit SmallHost(std::int64_t num_host_blocks)
      : SmallCache(24), host(num_host_blocks * (kSmallBlockBytes + 16)), tier(kv, {kSmallBlockBytes}, &host, nullptr) {}
  void before_computing() override { do_moves(tier, storage); }
  std::size_t step() {
    tier.begin_step();
    return do_moves(tier, storage).size();
  }

  HostTier host;
  LowerTier tier;
};

TEST_CASE("what is cached moves to the host tier until all that fits is there, and no further", "[tier]") {
  std::mt19937 random(1);
  std::int64_t most_in_host = 0;
  for (int life = 0; life < 400; ++life) {
    const std::int64_t num_host_blocks = 1 + static_cast<std::int64_t>(random() % 23);
    CAPTURE(life, num_host_blocks);
    SmallHost cache(num_host_blocks);
    std::vector<std::vector<TokenId>> texts{made_tokens(12, life)};
    for (int i = 0; i < 20; ++i) {
      // Continues a prefix of an earlier prompt: the cached blocks form trees.
      std::vector<TokenId> text = texts[random() % texts.size()];
      text.resize(random() % (text.size() + 1));
      text = longer(std::move(text), 4 + static_cast<int>(random() % 16), static_cast<int>(random() % 1000));
      if (text.size() > 60) continue;
      cache.serve(text);
      texts.push_back(std::move(text));
      if (random() % 2 == 0) cache.step();
    }
    int num_steps = 0;
    while (cache.step() > 0 && num_steps < 1000)
      ++num_steps;
    REQUIRE(num_steps < 1000);
    CHECK(cache.host.num_bytes() <= cache.host.max_bytes());
    most_in_host = std::max(most_in_host, cache.host.num_blocks());
    cache.kv.check_integrity();
  }
  CHECK(most_in_host > 20);
}

TEST_CASE("preempted streams are swapped out and in, and say the same", "[tier][engine]") {
  std::vector<std::vector<TokenId>> expected;
  const auto request = [](int i) { return request_of(made_tokens(30 + i, i), 60); };
  for (int i = 0; i < 12; ++i) {
    Harness harness;
    const auto sink = harness.submit(request(i));
    harness.run();
    expected.push_back(sink->choices[0].tokens);
  }
  struct Case {
    std::int64_t host_bytes;
    Preemption preemption;
    bool swaps;
  };
  for (const Case& each : {Case{0, Preemption::kSwap, false}, Case{1 << 20, Preemption::kSwap, true},
                           Case{1 << 20, Preemption::kRecompute, false}}) {
    HarnessOptions options{.num_blocks = 50};
    options.engine.kv_cache.host_tier_bytes = each.host_bytes;
    options.engine.scheduler.preemption = each.preemption;
    Harness harness(options);
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (int i = 0; i < 12; ++i)
      sinks.push_back(harness.submit(request(i)));
    harness.run();
    for (std::size_t i = 0; i < 12; ++i)
      CHECK(sinks[i]->choices[0].tokens == expected[i]);
    CHECK(harness.engine.stats().num_preemptions > 0);
    CHECK(harness.engine.stats().num_swaps == (each.swaps ? harness.engine.stats().num_preemptions : 0));
    CHECK((harness.engine.stats().num_blocks_restored > 0) == each.swaps);
    CHECK(harness.engine.stats().num_blocks_used == 0);
  }
}

TEST_CASE("texts are the same when swapping is chosen by what it costs", "[tier][engine]") {
  const auto request = [](int i) { return request_of(made_tokens(30 + i, i), 60); };
  HarnessOptions options{.num_blocks = 50};
  options.engine.kv_cache.host_tier_bytes = GENERATE(2'000, 1 << 20);  // room for fewer than are swapped out, for all
  Harness harness(options);
  Harness roomy({.num_blocks = 2000});
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  std::vector<std::shared_ptr<KeepingSink>> expected;
  for (int i = 0; i < 12; ++i) {
    sinks.push_back(harness.submit(request(i)));
    expected.push_back(roomy.submit(request(i)));
  }
  harness.run();
  roomy.run();
  for (std::size_t i = 0; i < 12; ++i)
    CHECK(sinks[i]->choices[0].tokens == expected[i]->choices[0].tokens);
  CHECK(harness.engine.stats().num_preemptions > 0);
  CHECK(harness.engine.stats().num_blocks_used == 0);
}
