// The hash of each block of a prompt is computed once and kept on its sequence: hash operations are counted.
#include <catch2/catch.hpp>
#include <map>

#include "tests/unit/engine/sched/scheduled_machine.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kHashedBlockSize = 16;  // block size of a ScheduledMachine

// Counts by key of the content; global because the cache takes a plain function.
std::map<std::pair<std::uint64_t, std::uint64_t>, int> num_key_hashes;

ChainKey counted_hash(const ChainKey& parent, std::span<const TokenId> tokens) {
  const ChainKey key = content_hash(parent, tokens);
  ++num_key_hashes[{key.high, key.low}];
  return key;
}

int num_hash_operations() {
  int sum = 0;
  for (const auto& [key, count] : num_key_hashes)
    sum += count;
  return sum;
}

int most_for_one_block() {
  int most = 0;
  for (const auto& [key, count] : num_key_hashes)
    most = std::max(most, count);
  return most;
}

bool all_done(const ScheduledMachine& machine) {
  return std::ranges::all_of(machine.sequences(), [](const Sequence& each) { return each.num_generated() > 0; });
}

}  // namespace

TEST_CASE("a prompt's block hashes are computed once, however often it is looked at while it waits", "[hashes]") {
  SchedulerOptions options{.max_num_seqs = 4};
  options.policy = GENERATE(SchedulerPolicy::kFcfs, SchedulerPolicy::kPriority, SchedulerPolicy::kFair);
  num_key_hashes.clear();
  ScheduledMachine machine(options, 100'000, counted_hash);
  for (int i = 0; i < 40; ++i)
    machine.add(request_of(made_tokens(200 + 40 * i, i, 50'000), 20));
  while (!all_done(machine) && machine.num_steps < 10'000)
    machine.step();
  CHECK(machine.num_steps > 100);
  CHECK(most_for_one_block() == 1);
  int num_blocks = 0;
  for (const Sequence& each : machine.sequences())
    num_blocks += static_cast<int>(each.num_tokens() / kHashedBlockSize);
  CHECK(num_hash_operations() <= num_blocks);
  CHECK(num_hash_operations() >= 40 * 200 / kHashedBlockSize);
}

TEST_CASE("while sequences wait for the prefix that another computes no hash is computed again", "[hashes]") {
  num_key_hashes.clear();
  ScheduledMachine machine({.max_num_seqs = 64}, 100'000, counted_hash);
  constexpr int kNumEqual = 9;
  for (int i = 0; i < kNumEqual; ++i)
    machine.add(request_of(made_tokens(12'000, 1, 50'000), 20));
  for (int i = 0; i < 20; ++i) {
    const int before = num_hash_operations();
    const std::int64_t computed_before = machine.sequences()[0].num_computed;
    machine.step();
    // The sequence that computes names its blocks as they become full; each other one looks at its next block once.
    const std::int64_t computed = machine.sequences()[0].num_computed - computed_before;
    CHECK(num_hash_operations() - before <= computed / kHashedBlockSize + 1 + (i == 0 ? kNumEqual : 0));
  }
  while (!all_done(machine) && machine.num_steps < 10'000)
    machine.step();
  // Each sequence that has the block may compute its hash once.
  CHECK(most_for_one_block() <= kNumEqual);
}

TEST_CASE("a preempted sequence keeps the hashes of its blocks, and choices share those of their prompt", "[hashes]") {
  num_key_hashes.clear();
  ScheduledMachine machine({.max_num_seqs = 8}, 60, counted_hash);  // too few blocks for all that run
  for (int i = 0; i < 8; ++i)
    machine.add(request_of(made_tokens(100, i, 50'000), 150));
  for (int i = 0; i < 1500; ++i)
    machine.step();
  CHECK(machine.num_preemptions() > 3);
  CHECK(most_for_one_block() == 1);

  num_key_hashes.clear();
  ScheduledMachine choices({.max_num_seqs = 8}, 1000, counted_hash);
  Request request = request_of(made_tokens(160, 1, 50'000), 4);
  request.num_choices = 8;
  choices.add(request);
  for (int i = 0; i < 20; ++i)
    choices.step();
  CHECK(most_for_one_block() == 1);
}

TEST_CASE("looking for a prompt below the pool computes no hash twice", "[hashes][tier]") {
  num_key_hashes.clear();
  KvCache kv(6, 4, true, counted_hash);
  FakeStorage storage({.num_layers = 1, .num_blocks = 6, .block_size = 4, .num_kv_heads = 1, .head_dim = 1});
  HostTier host(1 << 20);
  LowerTier tier(kv, {16}, &host, nullptr);
  const auto serve = [&](const std::vector<TokenId>& prompt) {
    const auto count = static_cast<std::int64_t>(prompt.size());
    BlockTable table;
    std::vector<BlockCopy> copies;
    kv.open(table, "");
    kv.reserve(table, count);
    tier.restore(table, prompt, count - 1, 0.0);
    while (table.is_restoring) {
      tier.begin_step();
      do_moves(tier, storage);
    }
    REQUIRE(kv.admit(table, kv.match(table, prompt, count - 1), count, copies));
    do_moves(tier, storage);
    kv.commit(table, prompt, count);
    kv.release(table, prompt, count);
    kv.close(table);
  };
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  serve(prompt);
  serve(made_tokens(24, 2));
  const std::uint64_t restored_before = tier.num_restored();
  num_key_hashes.clear();
  serve(prompt);
  CHECK(tier.num_restored() > restored_before);
  CHECK(most_for_one_block() == 1);
}
