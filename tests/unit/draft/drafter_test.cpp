// Sources of drafts: the suffix automaton against a search of the whole text, prompt lookup, and how often a sequence
// is drafted whose drafts fail.
#include <catch2/catch.hpp>
#include <random>

#include "core/draft/acceptance.h"
#include "core/draft/likely_tokens.h"
#include "core/draft/prompt_lookup.h"
#include "core/draft/suffix_automaton.h"
#include "core/draft/time_model.h"
#include "tests/unit/engine/allocations.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

bool ends_with_suffix(const std::vector<int>& text, std::size_t end, std::size_t length) {
  return end >= length && std::equal(text.end() - static_cast<std::ptrdiff_t>(length), text.end(),
                                     text.begin() + static_cast<std::ptrdiff_t>(end - length));
}

// The longest suffix of the text that also ends before its end.
std::size_t longest_repeated_suffix(const std::vector<int>& text) {
  std::size_t longest = 0;
  for (std::size_t end = 1; end < text.size(); ++end) {
    while (longest < end && ends_with_suffix(text, end, longest + 1))
      ++longest;
  }
  return longest;
}

std::vector<TokenId> proposed(PromptLookup& lookup, const std::vector<TokenId>& tokens, std::size_t most = 4,
                              std::int64_t budget = 1 << 30) {
  std::vector<TokenId> drafts;
  lookup.propose(tokens, most, budget, drafts);
  return drafts;
}

}  // namespace

TEST_CASE("the suffix automaton finds the longest suffix that the text had before", "[draft]") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t num_letters = 1 + random() % 5;
    const std::size_t length = 1 + random() % 120;
    SuffixAutomaton automaton;
    if (round % 2 == 0) automaton.reserve(static_cast<std::int64_t>(length));
    std::vector<int> text;
    while (text.size() < length) {
      text.push_back(static_cast<int>(random() % num_letters));
      automaton.append(TokenId{text.back()});
      const SuffixAutomaton::Match match = automaton.match();
      REQUIRE(static_cast<std::size_t>(match.length) == longest_repeated_suffix(text));
      if (match.length == 0) continue;
      REQUIRE(static_cast<std::size_t>(match.end) < text.size());
      REQUIRE(ends_with_suffix(text, static_cast<std::size_t>(match.end), static_cast<std::size_t>(match.length)));
    }
    CHECK(automaton.num_tokens() == static_cast<std::int64_t>(length));
  }
}

TEST_CASE("the suffix automaton names the last use of a suffix that comes again and again", "[draft]") {
  SuffixAutomaton automaton;
  for (const int token : {1, 2, 3, 10, 1, 2, 3, 11, 1, 2, 3})
    automaton.append(TokenId{token});
  CHECK(automaton.match().length == 3);
  CHECK(automaton.match().end == 7);
}

TEST_CASE("the suffix automaton forgets all of its text at once", "[draft]") {
  SuffixAutomaton automaton;
  for (const int token : {5, 6, 5, 6})
    automaton.append(TokenId{token});
  automaton.clear();
  CHECK(automaton.num_tokens() == 0);
  automaton.append(TokenId{5});
  CHECK(automaton.match().length == 0);
}

TEST_CASE("reading what room was made for allocates nothing", "[draft][steady]") {
  SuffixAutomaton automaton;
  automaton.reserve(2000);
  std::mt19937 random(1);
  const std::int64_t before = num_allocations();
  for (int i = 0; i < 2000; ++i)
    automaton.append(TokenId{static_cast<int>(random() % 3)});
  CHECK(num_allocations() == before);
}

TEST_CASE("prompt lookup proposes what followed, and continues with its own tokens", "[draft]") {
  PromptLookup lookup(100);
  CHECK(proposed(lookup, tokens_of({1, 2, 3, 4, 5, 6, 7, 8})).empty());
  // Two tokens are no match; the draft of a repetition repeats it.
  PromptLookup short_match(100);
  CHECK(proposed(short_match, tokens_of({1, 2, 9, 1, 2})).empty());
  CHECK(proposed(short_match, tokens_of({1, 2, 9, 1, 2, 9}), 7) == tokens_of({1, 2, 9, 1, 2, 9, 1}));
  PromptLookup quoting(100);
  CHECK(proposed(quoting, tokens_of({1, 2, 3, 4, 5, 6, 7, 50, 2, 3, 4}), 3) == tokens_of({5, 6, 7}));
}

TEST_CASE("prompt lookup reads a long prompt in parts", "[draft]") {
  std::vector<TokenId> tokens = made_tokens(300, 3, 1'000'000);
  const std::vector<TokenId> quoted(tokens.begin() + 100, tokens.begin() + 110);
  tokens.insert(tokens.end(), quoted.begin(), quoted.begin() + 5);
  PromptLookup lookup(1000);
  std::int64_t budget = 200;
  std::vector<TokenId> drafts{TokenId{1}};
  lookup.propose(tokens, 4, budget, drafts);
  CHECK(drafts.empty());
  CHECK(budget == 0);
  lookup.propose(tokens, 4, budget, drafts);
  CHECK(drafts.empty());
  budget = 200;
  CHECK(lookup.propose(tokens, 4, budget, drafts) == DraftStrength::kWeak);
  CHECK(drafts == std::vector<TokenId>(quoted.begin() + 5, quoted.begin() + 9));
  CHECK(budget == 95);
  tokens.insert(tokens.end(), quoted.begin() + 5, quoted.begin() + 9);
  CHECK(lookup.propose(tokens, 4, budget, drafts) == DraftStrength::kStrong);
}

TEST_CASE("prompt lookup keeps the last tokens of a text beyond its bound", "[draft]") {
  std::vector<TokenId> tokens = made_tokens(PromptLookup::kMostIndexed, 5, 1 << 30);
  PromptLookup lookup(1 << 30);
  CHECK(proposed(lookup, tokens).empty());
  // Tokens beyond the bound are forgotten, those within are found.
  const std::vector<TokenId> early(tokens.begin() + 10, tokens.begin() + 20);
  const std::vector<TokenId> late(tokens.end() - 20, tokens.end() - 10);
  tokens.insert(tokens.end(), early.begin(), early.begin() + 5);
  CHECK(proposed(lookup, tokens).empty());
  tokens.insert(tokens.end(), late.begin(), late.begin() + 5);
  CHECK(proposed(lookup, tokens, 5) == std::vector<TokenId>(late.begin() + 5, late.end()));
}

TEST_CASE("a sequence whose drafts all fail is drafted ever more rarely", "[draft]") {
  DraftAcceptance acceptance(0.4);
  std::int64_t num_verified = 0;
  std::vector<std::int64_t> times;
  for (std::int64_t num_tokens = 1; num_tokens <= 4096; ++num_tokens) {
    if (!acceptance.is_due(num_tokens)) continue;
    const std::int64_t verified = std::min<std::int64_t>(acceptance.most(8), num_tokens < 4 ? 2 : 1);
    num_verified += verified;
    times.push_back(num_tokens);
    acceptance.note(verified, 0, num_tokens);
  }
  CHECK(num_verified <= 10 + 4 + 4096 / 256);
  CHECK(times[times.size() - 1] - times[times.size() - 2] == 256);
  // A sequence that is right again is drafted at once, as at the beginning.
  const std::int64_t next = times.back() + 256;
  REQUIRE(acceptance.is_due(next));
  acceptance.note(1, 1, next);
  CHECK(acceptance.is_due(next + 1));
  CHECK(acceptance.most(8) == 8);
  CHECK(acceptance.rate() >= 0.4);
}

TEST_CASE("the acceptance rate follows what was verified", "[draft]") {
  std::mt19937 random(3);
  DraftAcceptance acceptance(0.4);
  double sum = 0.0;
  for (int i = 0; i < 4000; ++i) {
    std::int64_t num_accepted = 0;
    while (num_accepted < 4 && random() % 10 < 7)
      ++num_accepted;
    acceptance.note(4, num_accepted, i);
    if (i >= 2000) sum += acceptance.rate();
  }
  CHECK(sum / 2000.0 > 0.63);  // most verified runs end with a wrong draft
  CHECK(sum / 2000.0 < 0.73);
}

TEST_CASE("drafts that are not worth their time are looked for again after a pause", "[draft]") {
  DraftAcceptance weak(0.4);
  weak.note_unused(100);
  CHECK_FALSE(weak.is_due(115));
  CHECK(weak.is_due(116));
  CHECK(weak.rate() == 0.4);
  DraftAcceptance strong(0.8);
  strong.note_unused(100);
  CHECK(strong.is_due(101));
}

TEST_CASE("likely tokens are those of the vocabulary's parts that texts use, until they use others", "[draft]") {
  const auto size_of = [](std::span<const OutputRange> ranges) {
    std::int64_t size = 0;
    for (const OutputRange& range : ranges)
      size += range.end - range.begin;
    return size;
  };
  const auto has = [](std::span<const OutputRange> ranges, std::int64_t token) {
    return std::ranges::any_of(ranges,
                               [&](const OutputRange& range) { return token >= range.begin && token < range.end; });
  };
  constexpr std::int64_t kVocabulary = 100'003;
  LikelyTokens likely(kVocabulary);
  std::mt19937 random(5);
  const auto note = [&](std::int32_t begin, std::int32_t count, int times) {
    for (int i = 0; i < times; ++i)
      likely.note(TokenId{begin + static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(count))});
  };
  note(0, 100, 300);
  CHECK(likely.ranges().empty());  // too few to tell
  note(0, 8000, 6000);
  note(100'000, 3, 300);  // the last part is a short one
  CHECK(size_of(likely.ranges()) < 9000);
  CHECK(has(likely.ranges(), 7000));
  CHECK(has(likely.ranges(), 100'002));
  CHECK_FALSE(has(likely.ranges(), 50'000));
  CHECK(likely.ranges().back().end == kVocabulary);
  note(50'000, 8000, 30'000);
  CHECK(has(likely.ranges(), 50'000));
  CHECK_FALSE(has(likely.ranges(), 7000));
  for (std::size_t i = 0; i < likely.ranges().size(); ++i) {
    CHECK(likely.ranges()[i].begin % kOutputStep == 0);
    CHECK(likely.ranges()[i].begin < likely.ranges()[i].end);
    if (i > 0) CHECK(likely.ranges()[i - 1].end < likely.ranges()[i].begin);
  }
  note(0, kVocabulary, 100'000);
  CHECK(size_of(likely.ranges()) > kVocabulary * 9 / 10);
  likely.note(TokenId{-5000});  // no token
  likely.note(TokenId{1 << 30});

  LikelyTokens small(4096);  // too small to be worth it
  for (int i = 0; i < 2000; ++i)
    small.note(TokenId{1});
  CHECK(small.ranges().empty());
}

TEST_CASE("the price of a round is learned for each number of sequences, and tried again where it was too high",
          "[engine][draft]") {
  DraftTimeModel times;
  CHECK(times.round_seconds(1) == 0.0);
  for (const double seconds : {9.0, 1.0, 2.0})
    times.note_round(1, seconds);
  CHECK(times.round_seconds(1) == 1.0);  // the first ones are cold
  CHECK(times.round_seconds(8) == 1.0);
  for (int i = 0; i < 3; ++i)
    times.note_round(8, 4.0);
  CHECK(times.round_seconds(8) == 4.0);
  CHECK(times.round_seconds(2) == 1.0);
  times.note_round(1, 1000.0);
  CHECK(times.round_seconds(1) == 1.125);
  for (int i = 0; i < 400; ++i)
    times.note_refused(8);
  CHECK(times.round_seconds(8) < 1.0);
  times.note_round(8, 0.0);
  CHECK(times.round_seconds(8) < 1.0);
}
