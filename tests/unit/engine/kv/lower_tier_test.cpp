#include "core/kv/moves/lower_tier.h"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>

#include "tests/unit/engine/kv/tier_folders.h"
#include "tests/unit/engine/kv/tiered_cache.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("blocks that are cheaper to recompute are not offloaded, and others restored only if that is cheaper",
          "[tier]") {
  Tiered tiered;
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  CHECK(tiered.tier.swap_seconds() == 0.0);
  tiered.serve(prompt, WhenEvicted::kForgotten);
  tiered.flood(2);
  CHECK(tiered.host.num_blocks() == 0);
  tiered.serve(prompt, WhenEvicted::kOffered);
  tiered.flood(3);
  CHECK(tiered.host.num_blocks() == 4);
  CHECK(tiered.tier.swap_seconds().value() > 0.0);
  CHECK(tiered.restored(prompt, 0.0) == 4);
  check_content(tiered, prompt, 16);
  CHECK(tiered.restored(prompt, 0.0) == 0);  // it is all here
  tiered.flood(4);
  CHECK(tiered.restored(prompt, 1e-12) == 0);
  CHECK(tiered.restored(prompt, 1.0, 11) == 2);  // limited to the usable blocks
  CHECK(tiered.restored(prompt, 1.0) == 2);
}

TEST_CASE("a price that is refused falls until it is tried again", "[tier]") {
  Tiered tiered;
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  tiered.serve(prompt);
  tiered.flood(2);
  REQUIRE(tiered.restored(prompt, 0.0) == 4);
  tiered.flood(3);
  const double of_token = tiered.tier.swap_seconds().value() / 4.0 / 1e6;  // a millionth of what was measured
  int num_refusals = 0;
  while (tiered.restored(prompt, of_token) == 0 && num_refusals < 10'000)
    ++num_refusals;
  CHECK(num_refusals > 100);
  CHECK(num_refusals < 2'000);
}

TEST_CASE("what the pool evicts comes back from disk, if reading costs less than computing", "[tier]") {
  const TemporaryFolder folder;
  Tiered tiered(folder);
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  tiered.serve(prompt);
  tiered.flood(2);
  tiered.settle();
  CHECK(tiered.disk->num_records() == 4);
  CHECK(tiered.restored(prompt, 1.0) == 4);
  check_content(tiered, prompt, 16);
  tiered.flood(3);
  CHECK(tiered.restored(prompt, 1e-12) == 0);  // now it is known what reading costs
  CHECK(tiered.restored(prompt, 1.0) == 4);
}

TEST_CASE("a step copies no more than its share, in and out", "[tier]") {
  Tiered tiered(LowerTierOptions{.max_bytes_per_step = 2 * kSmallBlockBytes});
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  tiered.serve(prompt);
  tiered.flood(2);  // asks for all six blocks in one step
  CHECK(tiered.host.num_blocks() == 2);
  for (int i = 0; i < 2; ++i) {
    tiered.serve(prompt);
    tiered.flood(3 + i);
  }
  CHECK(tiered.host.num_blocks() >= 4);
  BlockTable table;
  tiered.kv.open(table, "");
  REQUIRE(tiered.tier.restore(table, prompt, 16, 0.0));
  std::vector<std::uint64_t> counts;
  while (table.is_restoring) {
    const std::vector<BlockMove> moves = tiered.step();
    CHECK(moves.size() == 2);
    counts.push_back(tiered.tier.num_restored());
    CHECK(tiered.tier.is_moving() == table.is_restoring);
  }
  CHECK(counts == std::vector<std::uint64_t>{2, 4});
  tiered.kv.close(table);
}

TEST_CASE("what will soon be evicted is kept below before room is asked for", "[tier]") {
  Tiered tiered(LowerTierOptions{.max_bytes_per_step = 2 * kSmallBlockBytes});
  tiered.serve(made_tokens(24, 1));
  for (int i = 0; i < 8; ++i)
    CHECK(tiered.step().size() <= 2);
  CHECK(tiered.host.num_blocks() == 6);
}

TEST_CASE("many who wait for the same blocks have each read once, within the bound", "[tier]") {
  const TemporaryFolder folder;
  Tiered tiered(folder, {.max_bytes_in_flight = 2 * kSmallBlockBytes});
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  tiered.serve(prompt);
  tiered.flood(2);
  tiered.settle();
  std::list<BlockTable> tables(200);
  for (BlockTable& table : tables) {
    tiered.kv.open(table, "");
    CHECK(tiered.tier.restore(table, prompt, 16, 0.0));
  }
  const auto is_restoring = [&] {
    return std::any_of(tables.begin(), tables.end(), [](const BlockTable& table) { return table.is_restoring; });
  };
  while (is_restoring()) {
    tiered.settle();
    CHECK(tiered.tier.num_bytes_in_flight() <= 2 * kSmallBlockBytes);
  }
  CHECK(tiered.disk->num_reads() == 4);
  CHECK(tiered.tier.num_restored() == 4);
  for (BlockTable& table : tables)
    tiered.kv.close(table);
  check_content(tiered, prompt, 16);
  CHECK(tiered.kv.pool().num_referenced() == 0);
  tiered.kv.check_integrity();
}

TEST_CASE("blocks held for a restore give way to those who run, and go with a request that ends", "[tier]") {
  Tiered tiered(LowerTierOptions{.max_bytes_per_step = kSmallBlockBytes});
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  for (int i = 0; i < 4; ++i) {
    tiered.serve(prompt);
    tiered.flood(2);
  }
  REQUIRE(tiered.host.num_blocks() == 4);
  BlockTable waiting;
  tiered.kv.open(waiting, "");
  REQUIRE(tiered.tier.restore(waiting, prompt, 16, 0.0));
  for (int i = 0; i < 3; ++i)
    tiered.step();
  CHECK(tiered.kv.pool().num_referenced() == 3);
  BlockTable running;
  std::vector<BlockCopy> copies;
  tiered.kv.open(running, "");
  const bool closes = GENERATE(false, true);
  if (closes) tiered.kv.close(waiting);
  REQUIRE(tiered.kv.grow(running, 0, 24, copies));  // all six blocks
  CHECK_FALSE(waiting.is_restoring);
  tiered.kv.release(running, made_tokens(24, 5), 0);
  for (BlockTable* table : {&running, &waiting})
    tiered.kv.close(*table);
  CHECK(tiered.kv.pool().num_referenced() == 0);
  tiered.kv.check_integrity();
}

// Also if the request that it was loaded for has ended since, so that others may get the block before the step.
TEST_CASE("a block to be loaded is moving until the step takes its moves", "[tier]") {
  Tiered tiered(LowerTierOptions{.max_bytes_per_step = kSmallBlockBytes});
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  for (int i = 0; i < 4; ++i) {
    tiered.serve(prompt);
    tiered.flood(2);
  }
  BlockTable waiting;
  tiered.kv.open(waiting, "");
  REQUIRE(tiered.tier.restore(waiting, prompt, 16, 0.0));
  const auto moving = [&] {
    std::vector<BlockId> blocks;
    for (std::int32_t i = 0; i < tiered.kv.pool().num_blocks(); ++i) {
      if (tiered.kv.is_moving_next(BlockId{i})) blocks.push_back(BlockId{i});
    }
    return blocks;
  };
  CHECK(moving().empty());
  tiered.tier.begin_step();
  tiered.kv.close(waiting);
  const std::vector<BlockId> before = moving();
  std::vector<BlockMove> moves;
  tiered.tier.take_moves(moves);
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].kind == BlockMove::Kind::kLoad);
  CHECK(before == std::vector<BlockId>{moves[0].block});
  CHECK(moving().empty());
  tiered.tier.finish_moves(moves, {});
  tiered.kv.check_integrity();
}

namespace {

// The folder's thread blocks in reporting a read while the gate is shut.
class Gate {
 public:
  std::function<void()> pass() {
    return [this] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !is_shut_; });
    };
  }
  void shut(bool is_shut) {
    const std::lock_guard lock(mutex_);
    is_shut_ = is_shut;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_shut_ = false;
};

}  // namespace

TEST_CASE("at its end a disk that hangs is waited for until the deadline, and what was not written is dropped",
          "[tier]") {
  const TemporaryFolder folder;
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  {
    Tiered first(folder);
    first.serve(prompt);
    first.persist_all();
  }
  Gate gate;
  Tiered tiered(folder, {}, gate.pass());
  gate.shut(true);
  BlockTable table;
  tiered.kv.open(table, "");
  REQUIRE(tiered.tier.restore(table, prompt, 16, 0.0));
  tiered.step();  // the thread hangs from here on
  tiered.serve(made_tokens(17, 2));
  tiered.persist_all(LowerTier::Clock::now());
  tiered.kv.close(table);
  gate.shut(false);
  tiered.settle();
  CHECK(tiered.disk->num_records() == 4);
  CHECK(records_in(folder.path()).size() == 4);
  tiered.persist_all();
  CHECK(records_in(folder.path()).size() == 8);
  tiered.kv.check_integrity();
}

TEST_CASE("a disk that does not answer is not waited for longer than computing takes", "[tier]") {
  const TemporaryFolder folder;
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  {
    Tiered first(folder);
    first.serve(prompt);
    first.persist_all();
  }
  Gate gate;
  Tiered tiered(folder, {}, gate.pass());
  CHECK(tiered.disk->num_records() == 4);
  gate.shut(true);
  BlockTable table;
  tiered.kv.open(table, "");
  REQUIRE(tiered.tier.restore(table, prompt, 16, 1e-3));
  const auto given_up = tiered.tier.next_deadline();
  REQUIRE(given_up);
  tiered.tier.begin_step(*given_up - std::chrono::milliseconds(1));
  CHECK(table.is_restoring);
  CHECK(tiered.tier.is_restoring());  // the engine publishes this as waiting for others
  tiered.tier.begin_step(*given_up);
  CHECK_FALSE(table.is_restoring);
  CHECK_FALSE(tiered.tier.is_restoring());
  CHECK_FALSE(tiered.tier.restore(table, prompt, 16, 1e-3));  // nor asked again soon
  tiered.kv.close(table);
  gate.shut(false);
  tiered.settle();
  CHECK(tiered.tier.num_bytes_in_flight() == 0);
  tiered.kv.check_integrity();
}

TEST_CASE("a recurrent state that gave way comes back from host memory with the blocks before it", "[tier][state]") {
  HostTier host(1 << 20);
  TieredStates tiered(&host, nullptr);
  const std::vector<TokenId> first = made_tokens(12, 1);
  CHECK(tiered.serve(first) == 12);
  CHECK(tiered.serve(longer(first, 4, 2)) == 4);
  for (int other = 3; other < 6; ++other)  // take both states and all blocks
    CHECK(tiered.serve(made_tokens(20, other)) == 20);
  CHECK(tiered.serve(longer(first, 8, 6)) == 8);
  CHECK(tiered.serve(longer(longer(first, 4, 2), 4, 7)) == 4);
}

TEST_CASE("a recurrent state outlives the process on disk", "[tier][state]") {
  const TemporaryFolder folder;
  const auto disk = [&] {
    return std::make_unique<DiskTier>(
        DiskTierOptions{.directory = folder.path(), .max_bytes = 1 << 20, .max_queued_bytes = 1 << 20, .block_size = 4},
        [] {});
  };
  const std::vector<TokenId> first = made_tokens(12, 1);
  {
    const auto tier = disk();
    TieredStates before(nullptr, tier.get());
    tier->wait_idle();
    before.tier.begin_step();
    CHECK(before.serve(first) == 12);
    before.tier.persist_some(6);
    do_moves(before.tier, before.storage, &before.states);
    before.tier.end_persisting(LowerTier::Clock::time_point::max());
  }
  const auto tier = disk();
  TieredStates after(nullptr, tier.get());
  tier->wait_idle();
  after.tier.begin_step();
  CHECK(after.serve(longer(first, 8, 2)) == 8);
}
