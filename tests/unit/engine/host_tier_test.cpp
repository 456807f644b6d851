#include "core/kv/host_tier.h"

#include <catch2/catch.hpp>

#include "core/kv/lower_tier.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

std::vector<std::byte> host_payload(int value) {
  return std::vector<std::byte>(84, static_cast<std::byte>(value));
}

}  // namespace

TEST_CASE("the host tier finds blocks by what came before them, and keeps within its bound", "[tier]") {
  HostTier tier(400);  // four blocks of 84 bytes and 16 of tokens
  const TierId a = tier.offer(kNoTierId, "", made_tokens(4, 1), host_payload(1));
  const TierId b = tier.offer(a, "", made_tokens(4, 2), host_payload(2));
  const TierId c = tier.offer(kNoTierId, "", made_tokens(4, 3), host_payload(3));
  CHECK(tier.find(a, "", made_tokens(4, 2)) == b);
  CHECK(tier.find(c, "", made_tokens(4, 2)) == kNoTierId);
  CHECK(tier.find(kNoTierId, "salt", made_tokens(4, 1)) == kNoTierId);
  CHECK(tier.offer(a, "", made_tokens(4, 2), host_payload(9)) == b);
  CHECK(tier.payload(b) == host_payload(2));
  tier.offer(c, "", made_tokens(4, 4), host_payload(4));
  tier.offer(c, "", made_tokens(4, 5), host_payload(5));
  CHECK(tier.num_bytes() == 400);
  CHECK_FALSE(tier.contains(b));  // the oldest that nothing depends on; now nothing depends on its predecessor
  tier.offer(c, "", made_tokens(4, 6), host_payload(6));
  CHECK_FALSE(tier.contains(a));
  CHECK(tier.contains(c));
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

namespace {

struct Tiered : SmallCache {
  HostTier host{1 << 20};
  LowerTier tier{kv, storage, &host, nullptr};
};

}  // namespace

TEST_CASE("what is cheaper made anew is not kept below; what is, comes back only if that is cheaper", "[tier]") {
  Tiered tiered;
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  CHECK(tiered.tier.swap_seconds() == 0.0);
  tiered.serve(prompt, WhenEvicted::kForgotten);
  tiered.serve(made_tokens(24, 2), WhenEvicted::kOffered);  // takes all six blocks
  CHECK(tiered.host.num_blocks() == 0);
  tiered.serve(prompt, WhenEvicted::kOffered);
  tiered.serve(made_tokens(24, 3), WhenEvicted::kOffered);
  CHECK(tiered.host.num_blocks() == 4 + 6);
  CHECK(tiered.tier.swap_seconds().value() > 0.0);
  CHECK(tiered.tier.restore_from_host("", prompt, 16, 0.0) == 4);
  tiered.serve(made_tokens(24, 4), WhenEvicted::kOffered);
  CHECK(tiered.tier.restore_from_host("", prompt, 16, 1e-12) == 0);
  CHECK(tiered.tier.restore_from_host("", prompt, 16, 1.0) == 4);
  tiered.kv.check_integrity();
}

TEST_CASE("a price that is refused falls until it is tried again", "[tier]") {
  Tiered tiered;
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  tiered.serve(prompt, WhenEvicted::kOffered);
  tiered.serve(made_tokens(24, 2), WhenEvicted::kOffered);
  REQUIRE(tiered.tier.restore_from_host("", prompt, 16, 0.0) == 4);
  tiered.serve(made_tokens(24, 3), WhenEvicted::kOffered);
  const double of_token = tiered.tier.swap_seconds().value() / 4.0 / 1e6;  // a millionth of what was measured
  int num_refusals = 0;
  while (tiered.tier.restore_from_host("", prompt, 16, of_token) == 0 && num_refusals < 10'000)
    ++num_refusals;
  CHECK(num_refusals > 100);
  CHECK(num_refusals < 2'000);
}
