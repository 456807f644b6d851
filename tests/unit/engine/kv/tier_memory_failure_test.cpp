// Memory that runs out at any one place of the tiers below the pool, on the engine's side or on the thread of the
// disk's folder: the block being stored is lost, and nothing else.
#include <catch2/catch.hpp>

#include "core/kv/moves/lower_tier.h"
#include "tests/unit/engine/allocations.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/kv/state_memory.h"
#include "tests/unit/engine/kv/tier_folders.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kNumBlocks = 8;
constexpr std::int64_t kBlockBytes = 16;
constexpr std::int64_t kDiskBytes = 6'000;  // some records of a block with its state

// A cache of eight blocks of four tokens, with recurrent states or without, over host memory and a disk. A block's
// content is its tokens, a state's is the tokens before it. The engine's calls are fallible, the test's are not.
class TieredScene {
 public:
  TieredScene(const TemporaryFolder& folder, std::int64_t num_states)
      : states_(num_states),
        kv_(kNumBlocks, 4, true, content_hash, "", num_states),
        disk_({.directory = folder.path(), .max_bytes = kDiskBytes, .max_queued_bytes = 1 << 20, .block_size = 4},
              [] {}),
        tier_(kv_, {.block = kBlockBytes, .state = static_cast<std::int64_t>(states_.state_bytes())}, &host_, &disk_) {
    moves_.reserve(64);
    copies_.reserve(64);
  }

  // Computes a prompt from where its blocks and its state are found, and checks them.
  void serve(const std::vector<TokenId>& prompt) {
    const auto count = static_cast<std::int64_t>(prompt.size());
    BlockTable table;
    kv_.open(table, "");
    kv_.reserve(table, count);
    {
      const Fallible scope;
      tier_.restore(table, prompt, count - 1, 0.0);
    }
    while (table.is_restoring)
      step();
    const PrefixMatch match = kv_.match(table, prompt, count - 1);
    bool is_admitted = false;
    copies_.clear();
    {
      const Fallible scope;
      is_admitted = kv_.admit(table, match, count, copies_);
    }
    REQUIRE(is_admitted);
    move();
    compute(table, prompt, static_cast<std::size_t>(kv_.match_tokens(match)));
    {
      const Fallible scope;
      kv_.commit(table, prompt, count);
      kv_.release(table, prompt, count);
      kv_.close(table);
    }
    step();
  }

  // Takes a step that computes nothing; then the disk does all its work.
  void step() {
    {
      const Fallible scope;
      tier_.begin_step();
    }
    move();
    disk_.wait_idle();
  }

  // Persists like the engine at its end.
  void persist() {
    bool has_more = true;
    while (has_more) {
      {
        const Fallible scope;
        has_more = tier_.wait_for_room(LowerTier::Clock::time_point::max()) && tier_.persist_some(2);
      }
      move();
    }
    tier_.end_persisting(LowerTier::Clock::time_point::max());
    step();
  }

  void check() {
    step();
    step();
    kv_.check_integrity();
    CHECK(kv_.pool().num_referenced() == 0);
    CHECK(tier_.num_bytes_in_flight() == 0);
    CHECK(disk_.num_bytes() <= kDiskBytes);
  }
  std::uint64_t num_restored() const { return tier_.num_restored(); }
  bool can_write() const { return disk_.can_write(); }

 private:
  void move() {
    {
      const Fallible scope;
      tier_.take_moves(moves_);
    }
    const MoveTimes times = quire::do_moves(moves_, storage_, &states_, nullptr);
    {
      const Fallible scope;
      tier_.finish_moves(moves_, times);
    }
    moves_.clear();
  }

  void compute(BlockTable& table, const std::vector<TokenId>& prompt, std::size_t num_found) {
    for (const BlockCopy& each : copies_) {
      if (each.of == BlockCopy::Of::kState) {
        states_.copy_state(each.source.value, each.destination.value);
      } else {
        storage_.copy_block(each.source.value, each.destination.value);
      }
    }
    const auto slot = [&](std::size_t i) { return SmallCache::slot(table, i); };
    int num_wrong = 0;
    for (std::size_t i = 0; i < num_found; ++i)
      num_wrong += storage_.tokens[slot(i)] == prompt[i].value ? 0 : 1;
    CHECK(num_wrong == 0);
    for (std::size_t i = num_found; i < prompt.size(); ++i)
      storage_.tokens[slot(i)] = prompt[i].value;
    if (table.state == kNoState) return;
    std::vector<TokenId>& state = states_.of(table.state.value);
    if (num_found > 0)
      CHECK(state == std::vector<TokenId>(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(num_found)));
    state.assign(prompt.begin(), prompt.end());
  }

  FakeStorage storage_{{.num_layers = 1, .num_blocks = kNumBlocks, .block_size = 4, .num_kv_heads = 1, .head_dim = 1}};
  StateMemory states_;
  KvCache kv_;
  HostTier host_{1500};
  DiskTier disk_;
  LowerTier tier_;
  std::vector<BlockMove> moves_;
  std::vector<BlockCopy> copies_;
};

// Conversations that evict each other from the pool and from both tiers.
void converse(TieredScene& scene) {
  const std::vector<TokenId> first = made_tokens(12, 1);
  scene.serve(first);
  scene.serve(joined(first, made_tokens(4, 2)));
  for (int other = 3; other < 6; ++other)
    scene.serve(made_tokens(24, other));
  scene.serve(joined(first, made_tokens(8, 2)));
  scene.serve(made_tokens(24, 4));
}

}  // namespace

namespace {

// Fails each allocation in turn.
void check_exhausted(FailsIn where, std::int64_t num_states) {
  std::int64_t num_before = 0;
  std::uint64_t num_restored = 0;
  for (bool has_failed = true; has_failed; ++num_before) {
    INFO("allocation " << num_before);
    const TemporaryFolder folder;
    {
      TieredScene scene(folder, num_states);
      scene.step();
      fail_next_allocation(num_before, where);
      converse(scene);
      scene.persist();
      has_failed = !forget_failure();
      scene.check();
      converse(scene);
      scene.check();
      CHECK(scene.can_write());
      num_restored += scene.num_restored();
    }
    if (num_before % 3 != 0) continue;
    // A later process finds the stored blocks too.
    TieredScene next(folder, num_states);
    fail_next_allocation(num_before / 3, where);
    next.step();
    converse(next);
    has_failed = !forget_failure() || has_failed;
    next.check();
    converse(next);
    next.check();
  }
  CHECK(num_before > 50);
  CHECK(num_restored > 100);
}

}  // namespace

TEST_CASE("memory that is exhausted anywhere in the tiers costs what was to be kept, and nothing else",
          "[tier][memory]") {
  SECTION("in scopes that may fail") {
    check_exhausted(FailsIn::kFallible, 0);
  }
  SECTION("in other threads, with recurrent states") {
    check_exhausted(FailsIn::kOtherThreads, 3);
  }
}

TEST_CASE("memory that is exhausted in the tiers in the other combinations costs what was to be kept alone",
          "[tier][memory][.long]") {
  SECTION("in scopes that may fail, with recurrent states") {
    check_exhausted(FailsIn::kFallible, 3);
  }
  SECTION("in other threads") {
    check_exhausted(FailsIn::kOtherThreads, 0);
  }
}
