#include "core/kv/moves/chain_transfer.h"

#include <catch2/catch.hpp>
#include <optional>

#include "tests/unit/engine/kv/tiered_cache.h"

using namespace quire;
using namespace quire::test;

namespace chain_transfer {

// Result of a chain's transfer, once it has ended.
struct ChainEnd {
  ChainTransfer::Done done() {
    return [this](Result<KeptChain> result) { ended = std::move(result); };
  }
  std::optional<Result<KeptChain>> ended{};
};

KeptChain chain_of(Tiered& tiered, const std::vector<TokenId>& prompt) {
  ChainEnd end;
  tiered.tier.save_chain("", prompt, 1 << 20, end.done());
  while (!end.ended)
    tiered.step();
  REQUIRE(*end.ended);
  return **end.ended;
}

TEST_CASE("a chain is saved and restored with its bytes, a step's share at a time", "[tier][chain]") {
  const LowerTierOptions options{.max_bytes_per_step = 2 * kSmallBlockBytes};
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  Tiered from(options);
  from.serve(prompt);
  ChainEnd saved;
  from.tier.save_chain("", prompt, 1 << 20, saved.done());
  CHECK(from.step().size() == 2);
  CHECK_FALSE(saved.ended);
  CHECK(from.step().size() == 2);
  REQUIRE(saved.ended);
  REQUIRE(*saved.ended);
  CHECK((*saved.ended)->payloads.size() == 4);
  CHECK((*saved.ended)->content.tokens.size() == 16);
  from.kv.check_integrity();
  Tiered to(options);
  ChainEnd restored;
  to.tier.restore_chain(**saved.ended, restored.done());
  CHECK(to.step().size() == 2);
  CHECK_FALSE(restored.ended);
  CHECK(to.step().size() == 2);
  REQUIRE(restored.ended);
  CHECK((*restored.ended)->content.tokens == (*saved.ended)->content.tokens);
  check_content(to, prompt, 16);
  to.kv.check_integrity();
}

TEST_CASE("what a tier has of a chain is saved too, and what the pool has is not loaded again", "[tier][chain]") {
  Tiered tiered;
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  tiered.serve(prompt);
  tiered.flood(2);
  const KeptChain chain = chain_of(tiered, prompt);
  CHECK(chain.payloads.size() == 4);
  ChainEnd again;
  tiered.tier.restore_chain(chain, again.done());
  tiered.step();
  REQUIRE(again.ended);
  CHECK(*again.ended);
  check_content(tiered, prompt, 16);
}

TEST_CASE("a chain gives way to running sequences, and one that does not fit is refused", "[tier][chain]") {
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  Tiered from;
  from.serve(prompt);
  KeptChain chain = chain_of(from, prompt);
  Tiered to(LowerTierOptions{.max_bytes_per_step = kSmallBlockBytes});
  ChainEnd given_up;
  to.tier.restore_chain(chain, given_up.done());
  to.step();
  CHECK(to.tier.give_way());
  REQUIRE(given_up.ended);
  CHECK(given_up.ended->error().code == "kv_cache_full");
  to.serve(made_tokens(24, 3));
  ChainEnd too_large;
  from.tier.save_chain("", prompt, kSmallBlockBytes, too_large.done());
  from.step();
  REQUIRE(too_large.ended);
  CHECK(too_large.ended->error().code == "slot_too_large");
  chain.payloads.pop_back();
  ChainEnd other_layout;
  to.tier.restore_chain(chain, other_layout.done());
  REQUIRE(other_layout.ended);
  CHECK(other_layout.ended->error().code == "slot_mismatch");
  to.kv.check_integrity();
}

TEST_CASE("a chain of a model with recurrent layers takes its last state along", "[tier][state][chain]") {
  const std::vector<TokenId> first = made_tokens(12, 1);
  TieredStates before(nullptr, nullptr);
  CHECK(before.serve(first) == 12);
  ChainEnd saved;
  before.tier.save_chain("", first, 1 << 20, saved.done());
  before.tier.begin_step();
  do_moves(before.tier, before.storage, &before.states);
  REQUIRE(saved.ended);
  REQUIRE(*saved.ended);
  TieredStates after(nullptr, nullptr);
  ChainEnd restored;
  after.tier.restore_chain(**saved.ended, restored.done());
  after.tier.begin_step();
  do_moves(after.tier, after.storage, &after.states);
  REQUIRE(restored.ended);
  CHECK(after.serve(longer(first, 8, 2)) == 8);
}

}  // namespace chain_transfer
