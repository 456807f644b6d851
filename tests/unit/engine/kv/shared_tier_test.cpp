#include "core/kv/tiers/shared_tier.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tests/unit/engine/kv/fake_store.h"
#include "tests/unit/engine/kv/tiered_cache.h"

using namespace quire;
using namespace quire::test;

namespace {

// A small cache of one process over a store that others use too.
struct Replica : SmallCache {
  explicit Replica(std::shared_ptr<StoredRecords> records, std::uint64_t fingerprint = 7,
                   const LowerTierOptions& options = {}, std::int64_t max_known = 1 << 10, std::int32_t num_blocks = 6)
      : SmallCache(num_blocks) {
    auto made = std::make_unique<FakeStore>(std::move(records));
    store = made.get();
    shared = std::make_unique<SharedTier>(SharedTierOptions{.fingerprint = {fingerprint, 0},
                                                            .block_size = 4,
                                                            .payload_bytes = {kSmallBlockBytes},
                                                            .max_known = max_known},
                                          std::move(made));
    tier = std::make_unique<LowerTier>(kv, KvBytes{kSmallBlockBytes}, nullptr, nullptr, options, shared.get());
  }

  std::vector<BlockMove> step() {
    tier->begin_step();
    return do_moves(*tier, storage);
  }
  void before_computing() override { do_moves(*tier, storage); }
  // Computes a prompt and writes its new blocks to the store.
  void serve_and_publish(const std::vector<TokenId>& prompt) {
    step();
    serve(prompt);
    step();
    step();
  }
  // Returns how many of the prompt's blocks came back; each of their bytes is compared.
  std::int64_t restored(const std::vector<TokenId>& prompt, double compute_seconds = 0.0, std::int64_t limit = 16,
                        int most_steps = 50) {
    const std::uint64_t before = tier->num_restored();
    BlockTable table;
    kv.open(table, "");
    tier->restore(table, prompt, limit, compute_seconds);
    for (int i = 0; table.is_restoring && i < most_steps; ++i)
      step();
    const PrefixMatch match = kv.match(table, prompt, limit);
    std::vector<BlockCopy> copies;
    if (!table.is_restoring && kv.admit(table, match, limit, copies)) {
      for (std::size_t i = 0; std::cmp_less(i, match.num_blocks * 4); ++i)
        CHECK(storage.tokens[slot(table, i)] == prompt[i].value);
      kv.release(table, prompt, std::int64_t{match.num_blocks} * 4);
    }
    kv.close(table);
    kv.check_integrity();
    return static_cast<std::int64_t>(tier->num_restored() - before);
  }

  FakeStore* store;
  std::unique_ptr<SharedTier> shared;
  std::unique_ptr<LowerTier> tier;
};

struct Fleet {
  std::shared_ptr<StoredRecords> records = std::make_shared<StoredRecords>();
  const std::vector<TokenId> prompt = made_tokens(17, 1);
};

}  // namespace

TEST_CASE("more cached blocks than the tier may know of are not written again and again", "[tier]") {
  Replica replica(std::make_shared<StoredRecords>(), 7, {}, 3);
  replica.serve(made_tokens(24, 1));
  int num_steps = 0;
  while (!replica.step().empty() && num_steps < 100)
    ++num_steps;
  CHECK(num_steps > 0);
  CHECK(num_steps < 100);
}

TEST_CASE("what one process computed another restores, before anything was evicted", "[tier][shared]") {
  Fleet fleet;
  Replica first(fleet.records);
  first.serve_and_publish(fleet.prompt);
  CHECK(fleet.records->size() == 4);
  Replica second(fleet.records);
  CHECK(second.restored(fleet.prompt) == 4);
  CHECK(second.store->num_look_ups == 1);
  CHECK(second.store->num_reads == 4);
  // The block is stored now: it is neither looked up nor written again.
  CHECK(second.restored(fleet.prompt) == 0);
  CHECK(second.store->num_look_ups == 1);
  second.step();
  CHECK(second.store->num_writes == 0);
  // The conversation continues: blocks missing from its beginning come back too.
  const std::vector<TokenId> turn = longer(std::vector(fleet.prompt.begin(), fleet.prompt.begin() + 16), 8, 5);
  second.serve_and_publish(turn);
  CHECK(first.restored(turn, 0.0, 24) == 2);
}

TEST_CASE("records of another model, layout or level are never restored", "[tier][shared]") {
  Fleet fleet;
  Replica(fleet.records, 7).serve_and_publish(fleet.prompt);
  Replica other(fleet.records, 8);
  CHECK(other.restored(fleet.prompt) == 0);
  // The other's records are refused even under this one's name.
  StoredRecords moved;
  for (auto& [place, bytes] : *fleet.records)
    moved[{8, std::get<1>(place), std::get<2>(place)}] = bytes;
  *fleet.records = moved;
  CHECK(Replica(fleet.records, 8).restored(fleet.prompt) == 0);
  CHECK(Replica(fleet.records, 7).restored(fleet.prompt) == 0);
}

TEST_CASE("what is damaged, truncated, exchanged or gone in the store is a miss", "[tier][shared]") {
  Fleet fleet;
  Replica(fleet.records).serve_and_publish(fleet.prompt);
  REQUIRE(fleet.records->size() == 4);
  Replica reader(fleet.records);
  // The block was there at the look-up.
  const auto spoil = [&](const std::function<void(StoredRecords&)>& how) {
    BlockTable table;
    reader.kv.open(table, "");
    reader.tier->restore(table, fleet.prompt, 16, 0.0);
    how(*fleet.records);
    while (table.is_restoring)
      reader.step();
    reader.kv.close(table);
    reader.kv.check_integrity();
  };
  SECTION("each bit of a record") {
    for (std::size_t bit = 0; bit < fleet.records->begin()->second.size() * 8; ++bit) {
      StoredRecords damaged;
      for (const auto& [place, bytes] : *fleet.records) {
        damaged[place] = bytes;
        damaged[place][bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      }
      CHECK(Replica(std::make_shared<StoredRecords>(damaged)).restored(fleet.prompt) == 0);
    }
  }
  SECTION("gone after the answer") {
    spoil([](StoredRecords& records) { records.clear(); });
    CHECK(reader.tier->num_restored() == 0);
  }
  SECTION("truncated after the answer") {
    spoil([](StoredRecords& records) {
      for (auto& [place, bytes] : records)
        bytes.resize(bytes.size() / 2);
    });
    CHECK(reader.tier->num_restored() == 0);
  }
  SECTION("a record that is right lies under another one's key") {
    spoil([](StoredRecords& records) {
      std::vector<std::byte> last;
      for (auto& [place, bytes] : records)
        std::swap(last, bytes);
      records.begin()->second = last;
    });
    CHECK(reader.tier->num_restored() == 0);
  }
}

TEST_CASE("a store that is down is not asked, and one that stops answering holds nothing up", "[tier][shared]") {
  Fleet fleet;
  Replica(fleet.records).serve_and_publish(fleet.prompt);
  Replica replica(fleet.records);
  replica.store->up = false;
  CHECK(replica.restored(fleet.prompt) == 0);
  CHECK(replica.store->num_look_ups == 0);
  replica.serve(fleet.prompt);
  replica.step();
  CHECK_FALSE(replica.tier->is_moving());
  CHECK(replica.store->num_writes == 0);
  replica.store->up = true;
  replica.store->answers = false;
  const std::vector<TokenId> other = made_tokens(17, 2);
  BlockTable table;
  replica.kv.open(table, "");
  const auto now = LowerTier::Clock::now();
  REQUIRE(replica.tier->restore(table, other, 16, 1e-3, now));
  replica.tier->begin_step(now);
  CHECK(table.is_restoring);
  CHECK_FALSE(replica.tier->is_moving());  // the engine sleeps, or computes for others
  replica.tier->begin_step(replica.tier->next_deadline().value());
  CHECK_FALSE(table.is_restoring);
  replica.kv.close(table);
  // The read took longer than computing: the next one does not wait.
  replica.kv.open(table, "");
  CHECK_FALSE(replica.tier->restore(table, other, 16, 1e-3, now));
  replica.kv.close(table);
  replica.store->answer();  // late: nothing waits for it
  replica.step();
}

TEST_CASE("a daemon that has computed nothing yet waits for a long prompt as long as enough of it comes",
          "[tier][shared]") {
  constexpr std::int64_t kNumBlocks = 400;
  const auto records = std::make_shared<StoredRecords>();
  const std::vector<TokenId> prompt = made_tokens(4 * kNumBlocks + 1, 1);
  Replica(records, 7, {}, 1 << 10, 500).serve_and_publish(prompt);
  REQUIRE(std::ssize(*records) == kNumBlocks);
  // Takes steps a second apart, each of which restores `blocks_per_second` blocks.
  const auto restored = [&](std::int64_t blocks_per_second, double compute_seconds) {
    LowerTierOptions options;
    options.max_bytes_in_flight = blocks_per_second * kSmallBlockBytes;
    Replica fresh(records, 7, options, 1 << 10, 500);
    BlockTable table;
    fresh.kv.open(table, "");
    auto now = LowerTier::Clock::now();
    REQUIRE(fresh.tier->restore(table, prompt, 4 * kNumBlocks, compute_seconds, now));
    int num_steps = 0;
    for (; table.is_restoring && num_steps < 100; ++num_steps, now += std::chrono::seconds(1)) {
      fresh.tier->begin_step(now);
      do_moves(*fresh.tier, fresh.storage);
    }
    CHECK(num_steps < 100);
    fresh.kv.close(table);
    fresh.kv.check_integrity();
    return static_cast<std::int64_t>(fresh.tier->num_restored());
  };
  CHECK(restored(160, 0.0) == kNumBlocks);
  CHECK(restored(40, 0.0) < kNumBlocks / 2);  // too few tokens in two seconds
  CHECK(restored(160, 1e-3) < kNumBlocks);    // 1.6 s of computing: not longer
  CHECK(restored(160, 1e-2) == kNumBlocks);
}

TEST_CASE("a store that failed may have lost everything: what is there is asked for again", "[tier][shared]") {
  Fleet fleet;
  Replica replica(fleet.records);
  replica.serve_and_publish(fleet.prompt);
  CHECK(replica.shared->num_known() == 4);
  fleet.records->clear();
  ++replica.store->num_failures;
  replica.step();
  CHECK(replica.shared->num_known() == 0);
  replica.kv.check_integrity();
  replica.serve(made_tokens(24, 2));  // evicted blocks are written again
  replica.step();
  CHECK(Replica(fleet.records).restored(fleet.prompt) > 0);
}

TEST_CASE("a full store keeps what it has, and is written again once it has room", "[tier][shared]") {
  Fleet fleet;
  Replica replica(fleet.records);
  replica.store->full = true;
  replica.serve_and_publish(fleet.prompt);
  CHECK(fleet.records->empty());
  CHECK_FALSE(replica.tier->is_moving());  // no read is tried in vain
  replica.store->full = false;
  replica.step();
  CHECK(fleet.records->size() == 4);
}

TEST_CASE("blocks are restored from the store only where that costs less than computing them", "[tier][shared]") {
  Fleet fleet;
  Replica(fleet.records).serve_and_publish(fleet.prompt);
  Replica replica(fleet.records);
  replica.store->seconds = 1.0;
  CHECK(replica.restored(fleet.prompt, 10.0) == 4);  // the price is not known before
  const std::vector<TokenId> other = made_tokens(17, 2);
  Replica(fleet.records).serve_and_publish(other);
  CHECK(replica.restored(other, 0.01) == 0);
  CHECK(replica.store->num_reads == 4);
  int num_refusals = 0;
  while (replica.restored(other, 0.1) == 0 && num_refusals < 1000)
    ++num_refusals;
  CHECK(num_refusals > 10);
  CHECK(num_refusals < 1000);
}

TEST_CASE("a step moves no more than its share to the store, parents before children", "[tier][shared]") {
  Fleet fleet;
  Replica replica(fleet.records, 7, {.max_bytes_per_step = 2 * kSmallBlockBytes});
  replica.step();
  replica.serve(fleet.prompt);
  CHECK(replica.step().size() == 2);
  CHECK(replica.tier->is_moving());
  CHECK(fleet.records->size() == 2);
  CHECK(Replica(fleet.records).restored(fleet.prompt) == 2);
  CHECK(replica.step().size() == 2);
  CHECK_FALSE(replica.tier->is_moving());
  CHECK(fleet.records->size() == 4);
}

TEST_CASE("what is remembered of the store is bounded, and the tree with it", "[tier][shared]") {
  Fleet fleet;
  Replica replica(fleet.records, 7, {}, 8);
  for (int seed = 0; seed < 50; ++seed) {
    replica.serve_and_publish(made_tokens(17, seed));
    CHECK(replica.shared->num_known() <= 8);
    CHECK(replica.kv.index().size() <= 6 + 8 + 4);
    replica.kv.check_integrity();
  }
  replica.kv.check_integrity();
  for (int seed = 0; seed < 50; ++seed)
    CHECK(replica.restored(made_tokens(17, seed)) + 4 >= 4);
}

TEST_CASE("a recurrent state behind a block goes to the store with it, and comes from there", "[tier][shared]") {
  Fleet fleet;
  const std::vector<TokenId> prompt = made_tokens(16, 3);
  const auto computed = [&](std::uint64_t fingerprint, const std::vector<TokenId>& tokens) {
    StateMemory states{2};
    SharedTier shared(
        {.fingerprint = {fingerprint, 0},
         .block_size = 4,
         .payload_bytes = {kSmallBlockBytes, kSmallBlockBytes + static_cast<std::int64_t>(states.state_bytes())}},
        std::make_unique<FakeStore>(fleet.records));
    TieredStates cache(nullptr, nullptr, &shared);
    return cache.serve(tokens);
  };
  CHECK(computed(7, prompt) == 16);
  CHECK(computed(7, longer(prompt, 4, 9)) == 4);  // from the state after the prompt, which serve() compares
  CHECK(computed(7, longer(longer(prompt, 4, 9), 4, 10)) == 4);
  CHECK(computed(8, longer(prompt, 4, 9)) == 20);
}

TEST_CASE("a prompt is published once the store has its blocks, or will not have them", "[tier][shared]") {
  Fleet fleet;
  Replica replica(fleet.records);
  const auto now = LowerTier::Clock::now();
  LowerTier::Publication publication;
  const auto begin = [&] {
    BlockTable table;
    replica.kv.open(table, "");
    replica.tier->begin_publication(publication, table, fleet.prompt, now);
    replica.kv.close(table);
  };
  const auto end = [&] {
    for (int i = 0; i < 20 && !replica.tier->has_ended(publication, now); ++i)
      replica.step();
    REQUIRE(replica.tier->has_ended(publication, now));
    const SharedPrefix prefix = replica.tier->end_publication(publication);
    replica.kv.check_integrity();
    return prefix;
  };
  SECTION("computed just now") {
    replica.step();
    replica.serve(fleet.prompt);
    begin();
    CHECK_FALSE(replica.tier->has_ended(publication, now));
    CHECK(end().num_tokens == 16);
    CHECK(fleet.records->size() == 4);
  }
  SECTION("computed while the store was away") {
    replica.store->up = false;
    replica.serve(fleet.prompt);
    replica.step();
    begin();
    CHECK(end().num_tokens == 0);
    replica.store->up = true;
    begin();
    const SharedPrefix prefix = end();
    CHECK(prefix.num_tokens == 16);
    CHECK(prefix.num_blocks == 4);
    CHECK(fleet.records->size() == 4);
    // Its name holds only for this prompt in this arithmetic.
    BlockTable table;
    replica.kv.open(table, "");
    CHECK(replica.tier->is_prefix(prefix, table, fleet.prompt));
    SharedPrefix other = prefix;
    other.fingerprint.back() ^= 1;
    CHECK_FALSE(replica.tier->is_prefix(other, table, fleet.prompt));
    other = prefix;
    other.num_tokens = 12;
    CHECK_FALSE(replica.tier->is_prefix(other, table, fleet.prompt));
    other.num_tokens = std::int64_t{1} << 40;
    CHECK_FALSE(replica.tier->is_prefix(other, table, fleet.prompt));
    replica.kv.close(table);
  }
  SECTION("the store takes them and answers nothing") {
    replica.store->answers = false;
    replica.serve(fleet.prompt);
    begin();
    for (int i = 0; i < 20; ++i)
      replica.step();
    CHECK_FALSE(replica.tier->has_ended(publication, now));
    CHECK(replica.tier->has_ended(publication, publication.give_up));
    CHECK(replica.tier->end_publication(publication).num_tokens == 0);
  }
  SECTION("never computed") {
    begin();
    CHECK(replica.tier->has_ended(publication, now));
    CHECK(end().num_tokens == 0);
  }
}

TEST_CASE("what another process published for a prompt is fetched once at any price", "[tier][shared]") {
  Fleet fleet;
  Replica(fleet.records).serve_and_publish(fleet.prompt);
  Replica second(fleet.records);
  second.store->answers = false;
  BlockTable table;
  second.kv.open(table, "");
  const auto now = LowerTier::Clock::now();
  constexpr double kNothing = 1e-12;  // price of computing
  REQUIRE(second.tier->restore(table, fleet.prompt, 16, kNothing, now));
  second.tier->begin_step(second.tier->next_deadline().value());
  CHECK_FALSE(table.is_restoring);
  second.kv.close(table);
  // The store took longer than computing: it is not asked except for this.
  second.kv.open(table, "");
  CHECK_FALSE(second.tier->restore(table, fleet.prompt, 16, kNothing, now));
  REQUIRE(second.tier->restore(table, fleet.prompt, 16, kNothing, now, true));
  CHECK(second.tier->next_deadline().value() > now + std::chrono::seconds(1));
  second.tier->begin_step(second.tier->next_deadline().value());
  CHECK_FALSE(table.is_restoring);
  CHECK_FALSE(second.tier->restore(table, fleet.prompt, 16, kNothing, now, true));
  second.kv.close(table);
  second.store->answer();  // late: nothing waits for it
  second.store->answers = true;
  second.step();
  second.kv.open(table, "");
  REQUIRE(second.tier->restore(table, fleet.prompt, 16, kNothing, now, true));
  for (int i = 0; table.is_restoring && i < 50; ++i)
    second.step();
  CHECK(second.tier->num_restored() == 4);
  second.kv.close(table);
}
