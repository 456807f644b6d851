// Parts of blocks, which layers with a window keep, by pool and cache alone.
#include "core/kv/pool/window_pool.h"

#include <catch2/catch.hpp>

#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

BlockId block(int value) {
  return BlockId{value};
}

}  // namespace

TEST_CASE("parts are given in order, and the least recently used one is taken first", "[window]") {
  WindowPool pool(3, 6);
  for (const int i : {4, 0, 2})
    pool.assign(block(i));
  CHECK(pool.part_of(block(4)) == PartId{0});
  CHECK(pool.part_of(block(0)) == PartId{1});
  CHECK(pool.part_of(block(2)) == PartId{2});
  CHECK(pool.num_available() == 0);
  CHECK(pool.num_pinned() == 3);
  pool.pin(block(0));
  CHECK_FALSE(pool.unpin(block(0)));
  CHECK(pool.unpin(block(2)));
  CHECK(pool.unpin(block(0)));
  CHECK(pool.num_cached() == 2);
  pool.assign(block(5));  // takes the place of block 2's part
  CHECK(pool.part_of(block(5)) == PartId{2});
  CHECK_FALSE(pool.has_part(block(2)));
  CHECK(pool.has_part(block(0)));
  pool.check_integrity();
  pool.drop(block(0));
  pool.drop(block(1));  // has none
  CHECK(pool.num_free() == 1);
  pool.move(block(5), block(3));
  CHECK(pool.part_of(block(3)) == PartId{2});
  CHECK_FALSE(pool.has_part(block(5)));
  CHECK(pool.peak_pinned() == 3);
  pool.check_integrity();
}

TEST_CASE("parts that are marked are taken after all others", "[window]") {
  WindowPool pool(3, 8);
  for (const int i : {0, 1, 2})
    pool.assign(block(i));
  pool.keep(block(0));
  for (const int i : {0, 1, 2})
    pool.unpin(block(i));
  pool.assign(block(3));
  CHECK_FALSE(pool.has_part(block(1)));
  pool.assign(block(4));
  CHECK_FALSE(pool.has_part(block(2)));
  CHECK(pool.has_part(block(0)));
  pool.pin(block(0));
  CHECK(pool.is_kept(block(0)));  // it stays marked
  pool.unpin(block(0));
  pool.assign(block(5));
  CHECK_FALSE(pool.has_part(block(0)));
  pool.check_integrity();
}

TEST_CASE("promised parts are not available to others", "[window]") {
  WindowPool pool(4, 8);
  pool.assign(block(0));
  pool.promise(2);
  CHECK(pool.num_available() == 1);
  pool.fulfil(1);
  pool.assign(block(1));
  CHECK(pool.num_available() == 1);
  CHECK(pool.num_promised() == 1);
  pool.check_integrity();
}

namespace {

// Forty blocks of four tokens; layers that see eight tokens keep thirteen of them.
struct Windowed {
  KvCache kv{40, 4, true, content_hash, "", 0, {8, 13}};
  std::vector<BlockCopy> copies;

  BlockTable open() {
    BlockTable table;
    kv.open(table, "");
    return table;
  }

  std::int64_t admit(BlockTable& table, const std::vector<TokenId>& prompt) {
    const auto count = static_cast<std::int64_t>(prompt.size());
    const PrefixMatch match = kv.match(table, prompt, count - 1);
    REQUIRE(kv.admit(table, match, count, copies));
    return kv.match_tokens(match);
  }

  void compute(BlockTable& table, const std::vector<TokenId>& prompt, std::int64_t from, std::int64_t to) {
    REQUIRE(kv.grow(table, from, to, copies));
    kv.commit(table, prompt, to);
    kv.check_integrity();
  }

  void close(BlockTable& table, const std::vector<TokenId>& prompt, std::int64_t num_computed) {
    kv.release(table, prompt, num_computed);
    kv.close(table);
    kv.check_integrity();
  }

  // Computes a prompt in steps of a block, and frees it; returns the matched tokens.
  std::int64_t serve(const std::vector<TokenId>& prompt) {
    const auto count = static_cast<std::int64_t>(prompt.size());
    BlockTable table = open();
    const std::int64_t found = admit(table, prompt);
    for (std::int64_t position = found; position < count; position += 4) {
      compute(table, prompt, position, std::min(position + 4, count));
      CHECK(kv.window().num_pinned() <= 3);
    }
    close(table, prompt, count);
    CHECK(kv.window().num_pinned() + kv.window().num_promised() == 0);
    return found;
  }
};

std::vector<TokenId> first_of(const std::vector<TokenId>& tokens, std::ptrdiff_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

}  // namespace

TEST_CASE("a sequence pins its window and what it computes, and is promised the parts that it needs next", "[window]") {
  Windowed windowed;
  const std::vector<TokenId> prompt = made_tokens(60, 1);
  BlockTable table = windowed.open();
  CHECK(windowed.admit(table, prompt) == 0);
  CHECK(table.blocks.size() == 15);
  CHECK(windowed.kv.window().num_pinned() == 0);
  CHECK(windowed.kv.window().num_promised() == 4);
  windowed.compute(table, prompt, 0, 24);
  // Token 24 sees 17 to 24: blocks 4 and 5.
  CHECK(table.pinned_begin == 4);
  CHECK(table.pinned_end == 6);
  CHECK(windowed.kv.window().num_pinned() == 2);
  CHECK(windowed.kv.window().num_promised() == 2);
  CHECK(windowed.kv.window().num_cached() == 4);
  windowed.compute(table, prompt, 24, 30);
  // Token 30 sees 23 to 30: blocks 5 to 7.
  CHECK(table.pinned_begin == 5);
  CHECK(table.pinned_end == 8);
  CHECK(windowed.kv.window().num_promised() == 1);
  windowed.close(table, prompt, 30);
  CHECK(windowed.kv.window().num_cached() == 8);
}

TEST_CASE("a prompt longer than all parts is computed, for blocks behind the window lose theirs", "[window]") {
  Windowed windowed;
  CHECK(windowed.serve(made_tokens(76, 1)) == 0);
  CHECK(windowed.kv.pool().num_cached() == 19);
}

TEST_CASE("a prefix is found as far as the window before its end is there", "[window]") {
  Windowed windowed;
  const std::vector<TokenId> prompt = made_tokens(60, 1);
  CHECK(windowed.serve(prompt) == 0);
  SECTION("at its end") {
    CHECK(windowed.serve(joined(prompt, made_tokens(3, 9))) == 60);
  }
  SECTION("in the middle, while the parts there are") {
    CHECK(windowed.serve(joined(first_of(prompt, 40), made_tokens(3, 9))) == 40);
  }
  SECTION("inside of a block, which is copied with its part") {
    windowed.copies.clear();
    CHECK(windowed.serve(joined(first_of(prompt, 42), made_tokens(3, 9))) == 42);
    REQUIRE(windowed.copies.size() == 2);
    CHECK(windowed.copies[0].of == BlockCopy::Of::kBlock);
    CHECK(windowed.copies[1].of == BlockCopy::Of::kPart);
  }
  SECTION("not at its beginning once others took the parts there") {
    CHECK(windowed.serve(made_tokens(16, 2)) == 0);
    CHECK(windowed.serve(joined(first_of(prompt, 8), made_tokens(3, 9))) == 0);
    CHECK(windowed.serve(joined(prompt, made_tokens(3, 9))) == 60);
  }
}

TEST_CASE("where sequences are likely to branch off, parts stay longer", "[window]") {
  Windowed windowed;
  const std::vector<TokenId> prompt = made_tokens(76, 1);
  BlockTable table = windowed.open();
  windowed.admit(table, prompt);
  for (std::int64_t position = 0; position < 76; position += 4) {
    REQUIRE(windowed.kv.grow(table, position, position + 4, windowed.copies));
    if (position + 4 == 20) windowed.kv.keep_window(table, 20);
    windowed.kv.commit(table, prompt, position + 4);
  }
  windowed.close(table, prompt, 76);
  // Thirteen parts for nineteen blocks: beside those of 20 and of the end the last ones are left.
  BlockTable probe = windowed.open();
  const auto matched = [&](std::ptrdiff_t count) {
    const std::vector<TokenId> other = joined(first_of(prompt, count), {TokenId{99}, TokenId{99}});
    probe.keys.clear();
    return windowed.kv.match_tokens(windowed.kv.match(probe, other, count));
  };
  CHECK(matched(20) == 20);
  CHECK(matched(16) == 0);
  CHECK(matched(28) == 20);
  CHECK(matched(40) == 40);
  CHECK(matched(76) == 76);
  windowed.kv.close(probe);
}

TEST_CASE("without parts nothing is admitted or grown, and nothing changes", "[window]") {
  Windowed windowed;
  const std::vector<TokenId> first = made_tokens(40, 1);
  const std::vector<TokenId> second = made_tokens(20, 2);
  BlockTable a = windowed.open();
  windowed.admit(a, first);
  REQUIRE(windowed.kv.grow(a, 0, 36, windowed.copies));  // nine parts
  BlockTable b = windowed.open();
  const PrefixMatch match = windowed.kv.match(b, second, 19);
  const KvRoom available = windowed.kv.available();
  CHECK(available.parts == 4);
  CHECK(windowed.kv.room_needed(b, match, 20).parts == 4);
  REQUIRE(windowed.kv.admit(b, match, 20, windowed.copies));
  CHECK(windowed.kv.available().parts == 0);
  BlockTable c = windowed.open();
  CHECK_FALSE(windowed.kv.admit(c, windowed.kv.match(c, second, 3), 4, windowed.copies));
  CHECK(c.blocks.empty());
  // Its five blocks are promised four parts.
  CHECK(windowed.kv.tokens_with_parts(b, 0) == 16);
  CHECK_FALSE(windowed.kv.grow(b, 0, 20, windowed.copies));
  CHECK(windowed.kv.window().num_promised() == 4);
  REQUIRE(windowed.kv.grow(b, 0, 16, windowed.copies));
  windowed.kv.commit(a, first, 36);
  REQUIRE(windowed.kv.grow(b, 0, 20, windowed.copies));
  windowed.kv.check_integrity();
  windowed.close(a, first, 36);
  windowed.close(b, second, 0);
  windowed.close(c, second, 0);
}

TEST_CASE("a fork shares its parent's window; who writes first copies the block and its part", "[window]") {
  Windowed windowed;
  const std::vector<TokenId> prompt = made_tokens(30, 1);
  BlockTable parent = windowed.open();
  windowed.admit(parent, prompt);
  windowed.compute(parent, prompt, 0, 30);
  CHECK(windowed.kv.can_fork(parent, 30, 30));
  CHECK_FALSE(windowed.kv.can_fork(parent, 20, 30));  // tokens that its next one sees may be gone
  BlockTable child = windowed.open();
  windowed.kv.fork(parent, child, 30);
  CHECK(child.pinned_begin == parent.pinned_begin);
  CHECK(child.pinned_end == parent.pinned_end);
  CHECK(windowed.kv.window().num_pinned() == 3);
  windowed.copies.clear();
  REQUIRE(windowed.kv.grow(child, 30, 31, windowed.copies));
  REQUIRE(windowed.copies.size() == 2);
  CHECK(windowed.copies[0].source == parent.blocks[7]);
  CHECK(windowed.copies[0].destination == child.blocks[7]);
  CHECK(windowed.copies[1].source.value == windowed.kv.window().part_of(parent.blocks[7]).value);
  CHECK(windowed.copies[1].destination.value == windowed.kv.window().part_of(child.blocks[7]).value);
  REQUIRE(windowed.kv.grow(parent, 30, 31, windowed.copies));
  CHECK(windowed.copies.size() == 2);
  windowed.kv.check_integrity();
  windowed.close(child, prompt, 30);
  CHECK(windowed.kv.window().num_pinned() == 3);
  windowed.close(parent, prompt, 30);
}

TEST_CASE("a block that two sequences computed keeps one part", "[window]") {
  Windowed windowed;
  const std::vector<TokenId> prompt = made_tokens(17, 1);
  BlockTable a = windowed.open();
  BlockTable b = windowed.open();
  windowed.admit(a, prompt);
  windowed.admit(b, prompt);
  windowed.compute(a, prompt, 0, 17);
  windowed.compute(b, prompt, 0, 17);
  CHECK(b.blocks[3] == a.blocks[3]);
  CHECK(windowed.kv.window().num_pinned() == 4);  // two that they share, and a last one of each
  windowed.close(a, prompt, 17);
  CHECK(windowed.kv.window().num_pinned() == 3);
  windowed.close(b, prompt, 17);
}

TEST_CASE("a prompt in progress takes over what another computed, with its parts", "[window]") {
  Windowed windowed;
  const std::vector<TokenId> prompt = made_tokens(33, 1);
  BlockTable a = windowed.open();
  BlockTable b = windowed.open();
  windowed.admit(a, prompt);
  windowed.admit(b, prompt);
  windowed.compute(a, prompt, 0, 8);
  windowed.compute(a, prompt, 8, 32);
  CHECK(windowed.kv.adopt(b, prompt, 0, 32) == 32);
  CHECK(b.pinned_begin == a.pinned_begin);
  CHECK(b.pinned_end == a.pinned_end);
  windowed.kv.check_integrity();
  windowed.compute(b, prompt, 32, 33);
  windowed.close(a, prompt, 32);
  windowed.close(b, prompt, 33);
}
