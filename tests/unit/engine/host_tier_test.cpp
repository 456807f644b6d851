#include "core/kv/host_tier.h"

#include <catch2/catch.hpp>

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
  HarnessOptions options{.num_blocks = 50};
  for (const std::int64_t host_bytes : {0, 1 << 20}) {
    options.engine.kv_cache.host_tier_bytes = host_bytes;
    Harness harness(options);
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (int i = 0; i < 12; ++i)
      sinks.push_back(harness.submit(request(i)));
    harness.run();
    for (std::size_t i = 0; i < 12; ++i)
      CHECK(sinks[i]->choices[0].tokens == expected[i]);
    CHECK(harness.engine.stats().num_preemptions > 0);
    CHECK((harness.engine.stats().num_blocks_restored > 0) == (host_bytes > 0));
    CHECK(harness.engine.stats().num_blocks_used == 0);
  }
}
