// A sampler that wants nothing but white space gets as much as the bound allows, and a value all the same.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/unit/grammar/support/check.h"

namespace quire::test::white_space {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Samples a text that has a space of some kind wherever one is allowed, and otherwise closes open brackets.
std::string spaced_text(const Grammar& grammar, std::mt19937& random) {
  constexpr std::string_view kClosing = "}]\":0ntrulfase";
  const auto state = grammar.start();
  std::string text;
  while (!state->finished()) {
    if (text.size() > 5000) FAIL("the text does not end: " << text.substr(0, 200));
    const auto mask = mask_of(*state, *byte_vocabulary());
    std::string wishes = " \n\t\r";
    std::shuffle(wishes.begin(), wishes.end(), random);
    wishes += kClosing;
    for (int byte = 33; byte < 127; ++byte)
      wishes += static_cast<char>(byte);
    const auto next =
        std::find_if(wishes.begin(), wishes.end(), [&](char c) { return in_mask(mask, TokenId{static_cast<int>(c)}); });
    REQUIRE(next != wishes.end());
    REQUIRE(state->accept(TokenId{static_cast<int>(*next)}));
    text += *next;
  }
  return text;
}

// The longest run of white space outside of strings.
std::size_t longest_run(const std::string& text) {
  std::size_t longest = 0;
  std::size_t run = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) in_string = !in_string;
    run = !in_string && is_space(text[i]) ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

const char* const kSchemas[] = {
    R"({"type":"object","properties":{"a":{"type":"integer","maximum":9,"minimum":0},"b":{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2}},"required":["a","b"],"additionalProperties":false})",
    R"({"type":"array","items":{"type":"object","properties":{"k":{"enum":["x"]}},"required":["k"],"additionalProperties":false},"minItems":3,"maxItems":3})",
};

TEST_CASE("a sampler that prefers white space fills no run beyond the bound, and its value is complete") {
  std::mt19937 random(3);
  for (const std::size_t most : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{40}}) {
    GrammarLimits limits;
    limits.max_spaces = most;
    const GrammarCompiler compiler(byte_vocabulary(), limits);
    for (const char* const schema : kSchemas) {
      const auto grammar = compiler.compile(schema_spec(schema));
      REQUIRE(grammar);
      const std::string text = spaced_text(**grammar, random);
      INFO(most << ": " << text);
      CHECK(longest_run(text) == most);
      CHECK(nlohmann::json::accept(text));
    }
  }
}

TEST_CASE("a compact grammar takes no white space between tokens, and every one inside of strings") {
  GrammarSpec spec = schema_spec(R"({"type":"object"})");
  spec.compact = true;
  CHECK(accepts(spec, R"({"a b":[1,{"c":" x "}]})"));
  CHECK_FALSE(accepts(spec, R"({"a": 1})"));
  CHECK_FALSE(accepts(spec, "{ }"));
  // It is another grammar than the same schema with white space.
  CHECK(accepts(schema_spec(R"({"type":"object"})"), R"({"a": 1})"));
}

TEST_CASE("the values in tool calls have the same bound") {
  GrammarLimits limits;
  limits.max_spaces = 2;
  const GrammarCompiler compiler(byte_vocabulary(), limits);
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kStructural;
  spec.tags = {{"<call>", R"({"type":"object"})", "</call>"}};
  const auto grammar = compiler.compile(spec);
  REQUIRE(grammar);
  CHECK(begins(**grammar, "free    text      <call>{  \"a\""));
  CHECK_FALSE(begins(**grammar, "<call>{   "));
}

}  // namespace quire::test::white_space
