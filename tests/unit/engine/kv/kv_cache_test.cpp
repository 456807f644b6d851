#include "core/kv/kv_cache.h"

#include <catch2/catch.hpp>

#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr int kBlockSize = 4;

struct Holder {
  BlockTable table;
  std::vector<TokenId> tokens;
  std::vector<BlockCopy> copies;
  std::int64_t num_cached = 0;
};

// Admits the tokens, computes them all, and holds their blocks.
Holder hold(KvCache& kv, std::vector<TokenId> tokens, const std::string& salt = "") {
  Holder holder{.table = {}, .tokens = std::move(tokens), .copies = {}};
  kv.open(holder.table, salt);
  const auto count = static_cast<std::int64_t>(holder.tokens.size());
  const PrefixMatch match = kv.match(holder.table, holder.tokens, count - 1);
  holder.num_cached = kv.match_tokens(match);
  REQUIRE(kv.admit(holder.table, match, count, holder.copies));
  kv.commit(holder.table, holder.tokens, count);
  return holder;
}

void let_go(KvCache& kv, Holder& holder) {
  kv.release(holder.table, holder.tokens, static_cast<std::int64_t>(holder.tokens.size()));
  kv.close(holder.table);
}

ChainKey always_equal(const ChainKey&, std::span<const TokenId>) {
  return {42, 42};
}

}  // namespace

TEST_CASE("full blocks are shared while held and found again after release", "[kv]") {
  KvCache kv(8, kBlockSize, true);
  Holder first = hold(kv, tokens_of({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  Holder second = hold(kv, tokens_of({1, 2, 3, 4, 5, 6, 7, 8, 30, 31}));
  CHECK(first.table.blocks == block_ids({0, 1, 2}));
  CHECK(second.table.blocks == block_ids({0, 1, 3}));
  CHECK(kv.pool().num_references(BlockId{1}) == 2);
  let_go(kv, first);
  let_go(kv, second);
  CHECK(kv.pool().num_cached() == 4);  // both tails are kept as well
  Holder third = hold(kv, tokens_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  CHECK(third.num_cached == 9);
  REQUIRE(third.copies.size() == 1);
  CHECK(third.copies[0].source == BlockId{2});
  CHECK(third.table.blocks == block_ids({0, 1, 4}));
  kv.check_integrity();
}

TEST_CASE("the last token is computed even where all of it is cached", "[kv]") {
  KvCache kv(8, kBlockSize, true);
  Holder first = hold(kv, tokens_of({1, 2, 3, 4, 5, 6, 7, 8}));
  let_go(kv, first);
  Holder second = hold(kv, tokens_of({1, 2, 3, 4, 5, 6, 7, 8}));
  CHECK(second.num_cached == 7);
  CHECK(second.table.blocks[0] == BlockId{0});
  // Its own copy of the second block turned out equal to the cached one, which it holds instead.
  CHECK(second.table.blocks[1] == BlockId{1});
  CHECK(kv.pool().num_referenced() == 2);
  kv.check_integrity();
}

namespace {

int num_hashed = 0;

ChainKey counting_hash(const ChainKey& parent, std::span<const TokenId> tokens) {
  ++num_hashed;
  return content_hash(parent, tokens);
}

}  // namespace

TEST_CASE("a chain key depends on all 128 bits of its parent, on each token and on their number", "[kv]") {
  const ChainKey root = root_key("salt");
  CHECK(root != root_key("other"));
  const std::vector<TokenId> tokens = made_tokens(200, 1);
  const ChainKey key = content_hash(root, tokens);
  CHECK(key == content_hash(root, made_tokens(200, 1)));
  CHECK(key != content_hash({root.low ^ 1, root.high}, tokens));
  CHECK(key != content_hash({root.low, root.high ^ 1}, tokens));
  CHECK(key != content_hash(root, std::span(tokens).first(199)));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::vector<TokenId> other = tokens;
    other[i] = TokenId{tokens[i].value + 1};
    CHECK(key != content_hash(root, other));
  }
}

TEST_CASE("a sequence's chain keys are computed once", "[kv]") {
  KvCache kv(8, kBlockSize, true, counting_hash);
  num_hashed = 0;
  const std::vector<TokenId> tokens = made_tokens(14, 1);
  BlockTable table;
  std::vector<BlockCopy> copies;
  kv.open(table, "");
  for (int i = 0; i < 5; ++i)
    CHECK(kv.match(table, tokens, 13).num_blocks == 0);
  CHECK(num_hashed == 1);  // nothing is found after the first block
  REQUIRE(kv.admit(table, kv.match(table, tokens, 13), 14, copies));
  kv.commit(table, tokens, 14);
  CHECK(num_hashed == 3);
  kv.release(table, tokens, 14);  // preempted
  CHECK(kv.match(table, tokens, 13).num_blocks == 3);
  CHECK(num_hashed == 3);
  BlockTable child;
  kv.open(child, "");
  REQUIRE(kv.admit(table, kv.match(table, tokens, 13), 14, copies));
  kv.fork(table, child, 14);
  kv.release(child, tokens, 14);
  CHECK(kv.match(child, tokens, 13).num_blocks == 3);
  CHECK(num_hashed == 3);
  for (BlockTable* each : {&child, &table}) {
    if (!each->blocks.empty()) kv.release(*each, tokens, 13);
    kv.close(*each);
  }
}

TEST_CASE("a hash is never identity", "[kv]") {
  KvCache kv(32, kBlockSize, true, always_equal);
  std::vector<Holder> holders;
  for (int i = 0; i < 6; ++i)
    holders.push_back(hold(kv, made_tokens(10, i)));
  for (const Holder& holder : holders)
    CHECK(holder.num_cached == 0);
  // An equal second block after another first block is other content.
  Holder crossed = hold(kv, [&] {
    std::vector<TokenId> tokens = made_tokens(4, 0);
    const std::vector<TokenId> other = made_tokens(10, 1);
    tokens.insert(tokens.end(), other.begin() + 4, other.end());
    return tokens;
  }());
  CHECK(crossed.num_cached == 4);
  kv.check_integrity();
}

TEST_CASE("cached blocks are evicted oldest first and tail first", "[kv]") {
  KvCache kv(6, kBlockSize, true);
  Holder old = hold(kv, tokens_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));  // blocks 0 1 2
  Holder recent = hold(kv, tokens_of({21, 22, 23, 24, 25, 26, 27, 28}));      // blocks 3 4
  let_go(kv, old);
  let_go(kv, recent);
  Holder fresh = hold(kv, tokens_of({41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52}));
  CHECK(fresh.table.blocks == block_ids({1, 2, 5}));  // 2 was evicted first, then 1; 5 was free
  BlockTable probe;
  kv.open(probe, "");
  CHECK(kv.match(probe, tokens_of({1, 2, 3, 4, 5, 6, 7, 8, 9}), 9).num_blocks == 1);
  kv.close(probe);
  kv.open(probe, "");  // another prompt
  CHECK(kv.match(probe, tokens_of({21, 22, 23, 24, 25, 26, 27, 28, 29}), 9).num_blocks == 2);
  kv.close(probe);
  kv.check_integrity();
}

TEST_CASE("a plan without room changes nothing", "[kv]") {
  KvCache kv(4, kBlockSize, true);
  Holder old = hold(kv, tokens_of({1, 2, 3, 4, 5, 6, 7, 8}));
  let_go(kv, old);
  Holder held = hold(kv, made_tokens(8, 1));
  BlockTable table;
  kv.open(table, "");
  std::vector<BlockCopy> copies;
  // Two cached blocks are matched: three more do not fit.
  const std::vector<TokenId> tokens = tokens_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
  const PrefixMatch match = kv.match(table, tokens, 12);
  CHECK(match.num_blocks == 2);
  CHECK_FALSE(kv.admit(table, match, 13, copies));
  CHECK(table.blocks.empty());
  CHECK(copies.empty());
  CHECK(kv.pool().num_cached() == 2);
  CHECK(kv.match(table, tokens, 12).num_blocks == 2);
  CHECK_FALSE(kv.grow(held.table, 8, 8 + 3 * kBlockSize, copies));
  CHECK(held.table.blocks.size() == 2);
  CHECK(kv.pool().num_cached() == 2);
  kv.close(table);
}

TEST_CASE("a fork shares blocks and copies the last one when it writes", "[kv]") {
  KvCache kv(8, kBlockSize, GENERATE(true, false));
  Holder parent = hold(kv, tokens_of({1, 2, 3, 4, 5, 6}));
  BlockTable child;
  kv.open(child, "");
  kv.fork(parent.table, child, 6);
  CHECK(child.blocks == block_ids({0, 1}));
  std::vector<BlockCopy> copies;
  REQUIRE(kv.grow(parent.table, 6, 7, copies));
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].source == BlockId{1});
  CHECK(copies[0].destination == BlockId{2});
  CHECK(parent.table.blocks == block_ids({0, 2}));
  REQUIRE(kv.grow(child, 6, 7, copies));  // the only owner left writes in place
  CHECK(copies.size() == 1);
  CHECK(child.blocks == block_ids({0, 1}));
  kv.release(child, parent.tokens, 6);
  kv.close(child);
  let_go(kv, parent);
  CHECK(kv.pool().num_referenced() == 0);
  kv.check_integrity();
}

TEST_CASE("equal content that two computed at once is kept once", "[kv]") {
  KvCache kv(8, kBlockSize, true);
  Holder a{.table = {}, .tokens = made_tokens(9, 1), .copies = {}};
  Holder b = a;
  for (Holder* holder : {&a, &b}) {
    kv.open(holder->table, "");
    REQUIRE(kv.admit(holder->table, kv.match(holder->table, holder->tokens, 8), 9, holder->copies));
  }
  kv.commit(a.table, a.tokens, 9);
  CHECK(kv.adopt(b.table, b.tokens, 0, 5) == 4);  // the first block only, as far as the limit allows
  kv.commit(b.table, b.tokens, 9);
  CHECK(b.table.blocks[0] == a.table.blocks[0]);
  CHECK(b.table.blocks[1] == a.table.blocks[1]);
  CHECK(b.table.blocks[2] != a.table.blocks[2]);
  CHECK(kv.pool().num_referenced() == 4);
  kv.check_integrity();
}

TEST_CASE("what another computed is taken where there are no blocks for it yet", "[kv]") {
  KvCache kv(8, kBlockSize, true);
  Holder longer = hold(kv, made_tokens(14, 1));
  Holder shorter = hold(kv, made_tokens(4, 1));  // its one block is full
  shorter.tokens = longer.tokens;                // the rest is forced on it, and not computed
  CHECK(kv.adopt(shorter.table, shorter.tokens, 4, 13) == 8);
  CHECK(shorter.table.blocks == block_ids({0, 1, 2}));
  REQUIRE(kv.grow(shorter.table, 12, 14, shorter.copies));
  CHECK(shorter.table.blocks.size() == 4);
  let_go(kv, shorter);
  let_go(kv, longer);
  CHECK(kv.pool().num_referenced() == 0);
  kv.check_integrity();
}

TEST_CASE("a salt's root is forgotten with its last block", "[kv]") {
  KvCache kv(4, kBlockSize, true);
  for (int i = 0; i < 20; ++i) {
    Holder holder = hold(kv, made_tokens(8, i), "salt " + std::to_string(i));
    let_go(kv, holder);
  }
  CHECK(kv.index().num_roots() == 2);  // for the four cached blocks, two each
  kv.check_integrity();
}

namespace {

// Serves a prompt and an answer under a cache with states; returns the prompt's matched tokens.
std::int64_t serve_turn(KvCache& kv, std::vector<TokenId> tokens, const std::vector<TokenId>& answer,
                        std::vector<BlockCopy>* copies_out = nullptr) {
  BlockTable table;
  std::vector<BlockCopy> copies;
  const auto num_prompt = static_cast<std::int64_t>(tokens.size());
  kv.open(table, "");
  const PrefixMatch match = kv.match(table, tokens, num_prompt - 1);
  REQUIRE(kv.admit(table, match, num_prompt, copies));
  kv.commit(table, tokens, num_prompt);
  kv.enter_partial(table, tokens, num_prompt);
  kv.keep_snapshot(table, tokens, num_prompt);
  for (const TokenId token : answer) {
    const auto num_computed = static_cast<std::int64_t>(tokens.size());
    tokens.push_back(token);
    REQUIRE(kv.grow(table, num_computed, num_computed + 1, copies));
    kv.commit(table, tokens, num_computed + 1);
  }
  kv.take_due_copies(copies);
  kv.release(table, tokens, static_cast<std::int64_t>(tokens.size()));
  kv.close(table);
  kv.check_integrity();
  CHECK(kv.states().num_live() == 0);
  if (copies_out != nullptr) *copies_out = copies;
  return kv.match_tokens(match);
}

}  // namespace

TEST_CASE("with recurrent layers a prefix is matched as far as a state is kept", "[kv][state]") {
  KvCache kv(64, kBlockSize, true, content_hash, "", 8);
  const std::vector<TokenId> prompt = made_tokens(30, 1);
  const std::vector<TokenId> answer = made_tokens(5, 2);
  CHECK(serve_turn(kv, prompt, answer) == 0);
  CHECK(kv.states().num_snapshots() == 2);
  // The conversation continues: where the answer ended.
  std::vector<BlockCopy> copies;
  CHECK(serve_turn(kv, joined(joined(prompt, answer), made_tokens(9, 3)), answer, &copies) == 35);
  REQUIRE(copies.size() == 3);  // the prompt's snapshot, the state, the last block's beginning
  CHECK(copies[0].of == BlockCopy::Of::kState);
  CHECK(copies[1].of == BlockCopy::Of::kState);
  CHECK(copies[2].of == BlockCopy::Of::kBlock);
  // With another answer: matched to the prompt's end, within a block.
  CHECK(serve_turn(kv, joined(prompt, made_tokens(9, 4)), answer) == 30);
  // Without the prompt's last token: its blocks match, but no state does.
  CHECK(serve_turn(kv, std::vector<TokenId>(prompt.begin(), prompt.end() - 1), {}) == 0);
}

TEST_CASE("states are kept every so often, and those that were not used for long give way", "[kv][state]") {
  KvCache kv(64, kBlockSize, true, content_hash, "", 3);
  kv.set_snapshot_interval(8);
  const std::vector<TokenId> prompt = made_tokens(40, 1);
  BlockTable table;
  std::vector<BlockCopy> copies;
  kv.open(table, "");
  REQUIRE(kv.admit(table, kv.match(table, prompt, 39), 40, copies));
  for (std::int64_t computed = 4; computed <= 36; computed += 4)
    kv.commit(table, prompt, computed);
  CHECK(kv.states().num_live() == 1);
  CHECK(kv.states().num_snapshots() == 2);  // after 24 and 32 tokens: there is no room for more
  kv.release(table, prompt, 36);            // preempted: its own state is kept
  CHECK(kv.states().num_snapshots() == 3);
  const PrefixMatch match = kv.match(table, prompt, 39);
  CHECK(kv.match_tokens(match) == 36);
  CHECK(kv.match_tokens(kv.match(table, prompt, 35)) == 32);
  CHECK(kv.match_tokens(kv.match(table, prompt, 31)) == 24);
  copies.clear();
  REQUIRE(kv.admit(table, match, 40, copies));
  CHECK(copies.size() == 1);  // the snapshot after 24 tokens made room
  CHECK(kv.match_tokens(kv.match(table, prompt, 31)) == 0);
  kv.release(table, prompt, 36);
  kv.close(table);
  kv.check_integrity();
}

TEST_CASE("a fork has a state of its own, copied before its parent continues", "[kv][state]") {
  KvCache kv(16, kBlockSize, GENERATE(true, false), content_hash, "", 4);
  Holder parent = hold(kv, made_tokens(6, 1));
  BlockTable child;
  kv.open(child, "");
  kv.fork(parent.table, child, 6);
  CHECK(child.state != parent.table.state);
  std::vector<BlockCopy> copies;
  REQUIRE(kv.grow(parent.table, 6, 7, copies));
  kv.take_due_copies(copies);
  REQUIRE(copies.size() == 2);
  CHECK(copies[0].of == BlockCopy::Of::kState);
  CHECK(copies[0].destination.value == child.state.value);
  kv.release(child, parent.tokens, 6);
  kv.close(child);
  let_go(kv, parent);
  CHECK(kv.states().num_live() == 0);
  kv.check_integrity();
}

TEST_CASE("a snapshot is freed with its block", "[kv][state]") {
  KvCache kv(4, kBlockSize, true, content_hash, "", 4);
  serve_turn(kv, made_tokens(9, 1), {});
  CHECK(kv.states().num_snapshots() == 1);
  serve_turn(kv, made_tokens(13, 2), {});  // all four blocks
  CHECK(kv.states().num_snapshots() == 1);
  CHECK(serve_turn(kv, joined(made_tokens(9, 1), made_tokens(2, 3)), {}) == 0);
}

TEST_CASE("without a free state nothing is admitted", "[kv][state]") {
  KvCache kv(16, kBlockSize, true, content_hash, "", 1);
  Holder first = hold(kv, made_tokens(6, 1));
  BlockTable table;
  kv.open(table, "");
  std::vector<BlockCopy> copies;
  const std::vector<TokenId> tokens = made_tokens(6, 2);
  CHECK_FALSE(kv.admit(table, kv.match(table, tokens, 5), 6, copies));
  CHECK(table.blocks.empty());
  let_go(kv, first);
  CHECK(kv.admit(table, kv.match(table, tokens, 5), 6, copies));
  kv.release(table, tokens, 0);
  kv.close(table);
}

TEST_CASE("a state that is ahead of the known tokens is freed, not kept", "[kv][state]") {
  KvCache kv(16, kBlockSize, true, content_hash, "", 2);
  Holder holder = hold(kv, made_tokens(6, 1));
  kv.drop_state(holder.table);
  let_go(kv, holder);
  CHECK(kv.states().num_live() == 0);
  CHECK(kv.states().num_snapshots() == 0);
  kv.check_integrity();
}

namespace {

std::vector<TokenId> distinct_tokens(int first, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(TokenId{first + i});
  return tokens;
}

void run_as(KvCache& kv, std::vector<TokenId> tokens, CacheClass cache_class) {
  Holder holder = hold(kv, std::move(tokens));
  holder.table.cache_class = cache_class;
  let_go(kv, holder);
}

std::int64_t num_found(KvCache& kv, const std::vector<TokenId>& tokens) {
  BlockTable table;
  kv.open(table, "");
  const std::int64_t found = kv.match_tokens(kv.match(table, tokens, static_cast<std::int64_t>(tokens.size())));
  kv.close(table);
  return found;
}

}  // namespace

TEST_CASE("a retained prompt is found after others filled the pool many times over, and all of them had room", "[kv]") {
  KvCache kv(32, kBlockSize, true);
  kv.set_retained_share(0.25);
  const auto agent = distinct_tokens(1, 7 * kBlockSize);
  const auto plain = distinct_tokens(500, 7 * kBlockSize);
  run_as(kv, agent, CacheClass::kRetained);
  run_as(kv, plain, CacheClass::kPlain);
  for (int i = 1; i <= 40; ++i)
    run_as(kv, distinct_tokens(1000 * i, 20 * kBlockSize), CacheClass::kPlain);
  CHECK(num_found(kv, agent) == 7 * kBlockSize);
  CHECK(num_found(kv, plain) == 0);
  kv.check_integrity();
  // A request that needs the whole pool gets it.
  run_as(kv, distinct_tokens(100'000, 32 * kBlockSize), CacheClass::kPlain);
  CHECK(num_found(kv, agent) == 0);
  kv.check_integrity();
}

TEST_CASE("what a batch computed leaves before what users did, and a prefix that both use is the users'", "[kv]") {
  KvCache kv(32, kBlockSize, true);
  const auto user = distinct_tokens(1, 8 * kBlockSize);
  run_as(kv, user, CacheClass::kPlain);
  for (int i = 1; i <= 40; ++i)
    run_as(kv, distinct_tokens(1000 * i, 20 * kBlockSize), CacheClass::kBackground);
  CHECK(num_found(kv, user) == 8 * kBlockSize);
  auto both = user;
  for (const TokenId token : distinct_tokens(50'000, 4 * kBlockSize))
    both.push_back(token);
  run_as(kv, both, CacheClass::kBackground);
  for (int i = 50; i <= 60; ++i)
    run_as(kv, distinct_tokens(1000 * i, 20 * kBlockSize), CacheClass::kBackground);
  CHECK(num_found(kv, both) == 8 * kBlockSize);
  kv.check_integrity();
}
