// Looking ahead: a state that is assigned another one continues as that one would, and leaves that one unchanged.
#include <catch2/catch.hpp>
#include <random>

#include "tests/unit/grammar/support/check.h"

using namespace quire;
using namespace quire::test;

namespace {

// A random allowed token; none if nothing is allowed.
std::optional<TokenId> any_allowed(const std::vector<std::uint32_t>& mask, std::mt19937& random) {
  std::vector<TokenId> allowed;
  for (std::size_t i = 0; i < 32 * mask.size(); ++i) {
    const TokenId token{static_cast<std::int32_t>(i)};
    if (in_mask(mask, token)) allowed.push_back(token);
  }
  if (allowed.empty()) return std::nullopt;
  return allowed[random() % allowed.size()];
}

}  // namespace

TEST_CASE("a state that is assigned another one continues as that one would", "[grammar]") {
  const TokenVocabulary& vocabulary = *byte_vocabulary();
  const auto grammar = GENERATE(
      as<GrammarSpec>{},
      schema_spec(
          R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}},"b":{"enum":["x","yy"]}},
                      "required":["a","b"]})"),
      schema_spec(R"({"type":"array","uniqueItems":true,"items":{"type":"string","maxLength":6}})"),
      text_spec(GrammarSpec::Kind::kRegex, "((ab|cd){2,5} [0-9]+,){3}"),
      text_spec(GrammarSpec::Kind::kGbnf, "root ::= \"(\" root \")\" | \"x\" | root \"+\" root"));
  const auto compiled_grammar = compiled(grammar);
  const auto real = compiled_grammar->start();
  const auto ahead = compiled_grammar->start();
  std::mt19937 random(4);
  for (int step = 0; step < 60; ++step) {
    const auto before = mask_of(*real, vocabulary);
    ahead->assign(*real);
    std::vector<TokenId> walked;
    std::vector<std::vector<std::uint32_t>> masks;
    for (int i = 0; i < 6 && !ahead->finished(); ++i) {
      masks.push_back(mask_of(*ahead, vocabulary));
      const auto token = any_allowed(masks.back(), random);
      if (!token || !ahead->accept(*token)) break;
      walked.push_back(*token);
    }
    CHECK(mask_of(*real, vocabulary) == before);
    // Part of the way for real.
    const std::size_t num_real = walked.empty() ? 0 : 1 + random() % walked.size();
    for (std::size_t i = 0; i < num_real; ++i) {
      REQUIRE(mask_of(*real, vocabulary) == masks[i]);
      REQUIRE(real->accept(walked[i]));
    }
    if (walked.empty() || real->finished()) break;
  }
}
