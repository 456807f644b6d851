#include "core/kv/pool/block_pool.h"

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/unit/engine/harness.h"

using namespace quire;
using test::block_ids;

namespace {

std::vector<BlockId> take(BlockPool& pool, std::size_t count) {
  std::vector<BlockId> blocks(count);
  REQUIRE(pool.allocate(blocks));
  return blocks;
}

// All cached blocks, in the order of eviction.
std::vector<BlockId> leaving(BlockPool& pool) {
  std::vector<BlockId> order;
  while (pool.num_cached() > 0) {
    order.push_back(pool.oldest_cached());
    pool.drop(order.back());
  }
  return order;
}

}  // namespace

TEST_CASE("blocks are handed out in order at first, then last freed first", "[pool]") {
  BlockPool pool(6);
  CHECK(take(pool, 4) == block_ids({0, 1, 2, 3}));
  pool.release(BlockId{1}, false);
  pool.release(BlockId{3}, false);
  pool.release(BlockId{0}, false);
  CHECK(take(pool, 4) == block_ids({0, 3, 1, 4}));
  pool.check_integrity();
}

TEST_CASE("an allocation takes all it asks for or nothing", "[pool]") {
  BlockPool pool(3);
  take(pool, 1);
  std::array<BlockId, 3> too_many{};
  CHECK_FALSE(pool.allocate(too_many));
  CHECK(pool.num_free() == 2);
  CHECK(take(pool, 2) == block_ids({1, 2}));
  CHECK(pool.num_free() == 0);
}

TEST_CASE("the last reference frees a block, or keeps it cached in the order of release", "[pool]") {
  BlockPool pool(4);
  take(pool, 4);
  pool.retain(BlockId{2});
  pool.release(BlockId{2}, true);
  CHECK(pool.num_references(BlockId{2}) == 1);
  pool.release(BlockId{2}, true);
  pool.release(BlockId{0}, true);
  pool.release(BlockId{3}, true);
  pool.release(BlockId{1}, false);
  CHECK(pool.num_cached() == 3);
  CHECK(pool.num_free() == 1);
  CHECK(pool.oldest_cached() == BlockId{2});
  pool.touch(BlockId{2});
  CHECK(pool.oldest_cached() == BlockId{0});
  pool.retain(BlockId{0});
  CHECK(pool.oldest_cached() == BlockId{3});
  pool.drop(BlockId{3});
  pool.drop(BlockId{2});
  CHECK(pool.oldest_cached() == kNoBlock);
  CHECK(take(pool, 3) == block_ids({2, 3, 1}));
  CHECK(pool.num_referenced() == 4);
  pool.check_integrity();
}

TEST_CASE("peak use is remembered", "[pool]") {
  BlockPool pool(5);
  for (const BlockId block : take(pool, 4))
    pool.release(block, false);
  take(pool, 2);
  CHECK(pool.num_referenced() == 2);
  CHECK(pool.peak_referenced() == 4);
}

TEST_CASE("blocks of returning conversations leave after the others, a fifth of the pool at most", "[pool]") {
  BlockPool pool(10);
  take(pool, 6);
  for (const int id : {0, 1, 2, 3, 4, 5}) {
    pool.raise(BlockId{id}, id < 3 ? CacheClass::kReturning : CacheClass::kPlain);
    pool.release(BlockId{id}, true);
  }
  // Two of ten are kept longer: 0, the oldest of the three, went back among the others, before 3 came.
  CHECK(leaving(pool) == block_ids({0, 3, 4, 5, 1, 2}));
  pool.check_integrity();
}

TEST_CASE("cached blocks leave by their class, and those that were retained last", "[pool]") {
  BlockPool pool(10);
  pool.set_retained_share(0.3);
  const CacheClass classes[] = {CacheClass::kRetained,  CacheClass::kPlain,    CacheClass::kBackground,
                                CacheClass::kReturning, CacheClass::kRetained, CacheClass::kBackground,
                                CacheClass::kPlain};
  take(pool, 7);
  for (int id = 0; id < 7; ++id) {
    pool.raise(BlockId{id}, classes[id]);
    pool.release(BlockId{id}, true);
  }
  CHECK(pool.num_cached(CacheClass::kRetained) == 2);
  // A user of a later class raises a block, one of an earlier class does not lower it.
  pool.retain(BlockId{0});
  pool.raise(BlockId{0}, CacheClass::kBackground);
  pool.release(BlockId{0}, true);
  std::vector<BlockId> walked;
  for (BlockId block = pool.oldest_cached(); block != kNoBlock; block = pool.next_cached(block))
    walked.push_back(block);
  CHECK(walked == block_ids({2, 5, 1, 6, 3, 4, 0}));
  CHECK(leaving(pool) == walked);
  pool.check_integrity();
}

TEST_CASE("retained blocks beyond their share are plain again, and all of them are there to be taken", "[pool]") {
  BlockPool pool(10);
  pool.set_retained_share(0.3);
  take(pool, 10);
  for (int id = 0; id < 10; ++id) {
    pool.raise(BlockId{id}, CacheClass::kRetained);
    pool.release(BlockId{id}, true);
    CHECK(pool.num_cached(CacheClass::kRetained) <= 3);
    pool.check_integrity();
  }
  CHECK(pool.num_available() == 10);
  CHECK(leaving(pool) == block_ids({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  CHECK(take(pool, 10).size() == 10);
  // A share of nothing retains nothing.
  BlockPool none(2);
  none.set_retained_share(0.0);
  take(none, 1);
  none.raise(BlockId{0}, CacheClass::kRetained);
  none.release(BlockId{0}, true);
  CHECK(none.cache_class(BlockId{0}) == CacheClass::kPlain);
}
