// Small caches over a LowerTier: Tiered, and TieredStates for models with recurrent layers; a block's or a state's
// content is its tokens. One thread at a time.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "core/kv/moves/lower_tier.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/kv/state_memory.h"

namespace quire::test {

inline constexpr std::int64_t kSmallBlockBytes = 16;  // block size of SmallCache

// A small cache over host memory, over a disk, or over both.
struct Tiered : SmallCache {
  explicit Tiered(const LowerTierOptions& options = {}) : tier(kv, {kSmallBlockBytes}, &host, nullptr, options) {}
  explicit Tiered(
      const TemporaryFolder& folder, const LowerTierOptions& options = {}, std::function<void()> ready = [] {})
      : disk(std::make_unique<DiskTier>(
            DiskTierOptions{
                .directory = folder.path(), .max_bytes = 1 << 20, .max_queued_bytes = 1 << 20, .block_size = 4},
            std::move(ready))),
        tier(kv, {kSmallBlockBytes}, nullptr, disk.get(), options) {
    settle();
  }

  // Takes a step that computes nothing; returns the moves.
  std::vector<BlockMove> step() {
    tier.begin_step();
    return do_moves(tier, storage);
  }
  void before_computing() override { do_moves(tier, storage); }
  // Waits until the disk has done its work and the tree knows of it.
  void settle() {
    step();
    disk->wait_idle();
    step();
  }
  // Persists like an engine at its end.
  void persist_all(LowerTier::Clock::time_point until = LowerTier::Clock::time_point::max()) {
    bool has_more = true;
    while (has_more && tier.wait_for_room(until)) {
      has_more = tier.persist_some(2);
      do_moves(tier, storage);
    }
    tier.end_persisting(until);
  }

  // Returns how many of the prompt's blocks came back, after all other work.
  std::int64_t restored(const std::vector<TokenId>& prompt, double compute_seconds, std::int64_t limit = 16) {
    const std::uint64_t before = tier.num_restored();
    BlockTable table;
    kv.open(table, "");
    tier.restore(table, prompt, limit, compute_seconds);
    while (table.is_restoring) {
      if (disk != nullptr) disk->wait_idle();
      step();
    }
    kv.close(table);
    kv.check_integrity();
    return static_cast<std::int64_t>(tier.num_restored() - before);
  }

  // Evicts all that is cached.
  void flood(int seed) {
    step();
    serve(made_tokens(24, seed), WhenEvicted::kForgotten);
  }

  HostTier host{1 << 20};
  std::unique_ptr<DiskTier> disk;
  LowerTier tier;
};

// Compares the content of a table's blocks with its tokens.
inline void check_content(Tiered& tiered, const std::vector<TokenId>& prompt, std::int64_t num_tokens) {
  BlockTable table;
  tiered.kv.open(table, "");
  const PrefixMatch match = tiered.kv.match(table, prompt, num_tokens);
  CHECK(match.num_blocks == num_tokens / 4);
  std::vector<BlockCopy> copies;
  REQUIRE(tiered.kv.admit(table, match, num_tokens + 1, copies));
  for (std::size_t i = 0; std::cmp_less(i, num_tokens); ++i)
    CHECK(tiered.storage.tokens[SmallCache::slot(table, i)] == prompt[i].value);
  tiered.kv.release(table, prompt, num_tokens);
  tiered.kv.close(table);
}

// A cache of a model with recurrent layers: six blocks of four tokens and two states, over host memory or a disk.
struct TieredStates {
  explicit TieredStates(HostTier* host, DiskTier* disk, SharedTier* shared = nullptr)
      : tier(kv, {.block = kSmallBlockBytes, .state = static_cast<std::int64_t>(states.state_bytes())}, host, disk, {},
             shared) {}

  // Computes a prompt of whole blocks from where its state is found, and keeps its state; returns the tokens computed.
  std::int64_t serve(const std::vector<TokenId>& prompt) {
    const auto count = static_cast<std::int64_t>(prompt.size());
    BlockTable table;
    kv.open(table, "");
    tier.restore(table, prompt, count - 1, 0.0);
    while (table.is_restoring)
      tier.begin_step();
    const PrefixMatch match = kv.match(table, prompt, count - 1);
    std::vector<BlockCopy> copies;
    REQUIRE(kv.admit(table, match, count, copies));
    do_moves(tier, storage, &states);
    copy(copies);
    const std::int64_t found = kv.match_tokens(match);
    std::vector<TokenId>& state = states.of(table.state.value);
    if (found == 0) state.clear();
    CHECK(state == std::vector<TokenId>(prompt.begin(), prompt.begin() + found));
    state = prompt;
    for (std::size_t i = static_cast<std::size_t>(found); i < prompt.size(); ++i)
      storage.tokens[SmallCache::slot(table, i)] = prompt[i].value;
    for (std::size_t i = 0; i < prompt.size(); ++i)
      CHECK(storage.tokens[SmallCache::slot(table, i)] == prompt[i].value);
    kv.commit(table, prompt, count);
    kv.release(table, prompt, count);
    kv.close(table);
    kv.check_integrity();
    tier.begin_step();
    do_moves(tier, storage, &states);
    return count - found;
  }
  void copy(const std::vector<BlockCopy>& copies) {
    for (const BlockCopy& each : copies) {
      if (each.of == BlockCopy::Of::kState) {
        states.copy_state(each.source.value, each.destination.value);
      } else {
        storage.copy_block(each.source.value, each.destination.value);
      }
    }
  }

  FakeStorage storage{{.num_layers = 1, .num_blocks = 6, .block_size = 4, .num_kv_heads = 1, .head_dim = 1}};
  StateMemory states{2};
  KvCache kv{6, 4, true, content_hash, "", 2};
  LowerTier tier;
};

inline std::vector<TokenId> longer(std::vector<TokenId> tokens, int count, int seed) {
  for (const TokenId token : made_tokens(count, seed))
    tokens.push_back(token);
  return tokens;
}

}  // namespace quire::test
