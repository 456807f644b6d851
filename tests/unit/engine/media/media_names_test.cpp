// Names of rows of media: equal names are equal content, here and for other processes.
#include <catch2/catch.hpp>
#include <random>

#include "core/content/media_names.h"
#include "core/kv/index/prefix_index.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

MediaRef piece(std::uint64_t number, std::int64_t num_rows) {
  return {{number, 7}, num_rows};
}

// Tokens, then rows [first, end) of the piece.
std::vector<TokenId> with_rows(std::vector<TokenId> tokens, TokenId first_row, std::int64_t first, std::int64_t end) {
  for (std::int64_t row = first; row < end; ++row)
    tokens.push_back(TokenId{static_cast<std::int32_t>(first_row.value + row)});
  return tokens;
}

}  // namespace

TEST_CASE("a piece keeps its names while it has users, and another one never has them", "[media]") {
  MediaNames names;
  const TokenId a = names.acquire(piece(1, 10));
  const TokenId b = names.acquire(piece(2, 10));
  CHECK(names.acquire(piece(1, 10)) == a);
  CHECK((b.value >= a.value + 10 || a.value >= b.value + 10));
  CHECK(is_media(a));
  CHECK_FALSE(is_media(TokenId{-1}));
  names.release(a);
  CHECK(names.num_pieces() == 2);
  names.release(a);
  CHECK(names.num_pieces() == 1);
  CHECK(names.acquire(piece(1, 11)) != b);
}

TEST_CASE("names are given again without overlapping, in any order of pieces that come and go", "[media]") {
  MediaNames names;
  std::mt19937 random(GENERATE(range(0U, 20U)));
  std::map<std::int32_t, std::int64_t> live;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const auto num_rows = static_cast<std::int64_t>(1 + random() % (std::uint64_t{1} << (random() % 27)));
    if (live.size() > 10 || (!live.empty() && random() % 3 == 0)) {
      const auto leaving = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      names.release(TokenId{leaving->first});
      live.erase(leaving);
      continue;
    }
    const TokenId first = names.acquire(piece(i, num_rows));
    REQUIRE(first.value + num_rows <= kFirstPlainId);
    for (const auto& [other, count] : live)
      REQUIRE((first.value + num_rows <= other || other + count <= first.value));
    live[first.value] = num_rows;
  }
}

TEST_CASE("content means the same to a process that named its pieces differently", "[media]") {
  MediaNames here;
  MediaNames there;
  const TokenId other = there.acquire(piece(99, 1000));
  const TokenId a = here.acquire(piece(1, 6));
  const TokenId b = here.acquire(piece(2, 4));
  std::vector<TokenId> content = with_rows(tokens_of({5, 6}), a, 0, 6);
  content = with_rows(content, a, 0, 6);  // the same picture twice, side by side
  content = with_rows(joined(content, tokens_of({7})), b, 1, 3);
  const PortableContent portable = here.exported(content);
  CHECK(portable.media == std::vector{piece(1, 6), piece(1, 6), piece(2, 4)});
  const auto imported = there.imported(portable);
  REQUIRE(imported);
  CHECK(there.exported(*imported) == portable);
  CHECK(there.num_pieces() == 3);
  there.drop_users(*imported);
  CHECK(there.num_pieces() == 1);
  there.release(other);
}

TEST_CASE("content whose rows and pieces do not match is not believed, and leaves no names", "[media]") {
  MediaNames names;
  PortableContent content{.tokens = {TokenId{1}, portable_row(0), portable_row(1)}, .media = {piece(1, 2)}};
  SECTION("no piece") {
    content.media.clear();
  }
  SECTION("a piece too many") {
    content.media.push_back(piece(2, 2));
  }
  SECTION("rows behind the piece's end") {
    content.media[0].num_rows = 1;
  }
  SECTION("a piece without rows") {
    content.media[0].num_rows = 0;
  }
  SECTION("more rows than there are names") {
    content.media[0].num_rows = std::int64_t{1} << 40;
  }
  CHECK_FALSE(names.imported(content));
  CHECK(names.num_pieces() == 0);
}

TEST_CASE("the key of a block with media names its pieces, not the ids that this process gave them", "[media]") {
  PrefixIndex here(4, 4, content_hash);
  PrefixIndex there(4, 4, content_hash);
  there.media().acquire(piece(99, 1000));
  const auto key = [](PrefixIndex& index, std::uint64_t number) {
    const TokenId first = index.media().acquire(piece(number, 3));
    return index.key_after({}, with_rows(tokens_of({5}), first, 0, 3));
  };
  CHECK(key(here, 1) == key(there, 1));
  CHECK(key(here, 1) != key(here, 2));
  CHECK(here.key_after({}, tokens_of({1, 2, 3, 4})) == content_hash({}, tokens_of({1, 2, 3, 4})));
}
