// Masks against the definition: a token is allowed exactly where its bytes are accepted one by one.
#include <catch2/catch.hpp>
#include <random>

#include "tests/support/material.h"
#include "tests/unit/grammar/support/check.h"

namespace quire::test {
namespace {

// Single bytes, and pieces that cross the borders of JSON's tokens in every way.
std::shared_ptr<const TokenVocabulary> crossing_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.emplace_back(1, static_cast<char>(byte));
  const std::vector<std::string> pieces = {
      "{\"",     "\":",      "\": ", "\",",   "\", \"", "\",\"",    "\"}",    "}",        "}}",
      "},",      "}, {",     "[{",   "]",     "],",     "[[",       "]]",     ",",        ", ",
      ",\n",     "\n  ",     "  ",   "    ",  ":",      "\"a",      "\"b\":", "a\"",      "b",
      "ab",      "abc\"",    "\"\"", "\"\":", "1",      "12",       "123",    "-",        "-1",
      "0.",      ".5",       "1,",   "1}",    "1]",     " 1",       " \"",    "true",     "true,",
      " false}", "null",     "nul",  "e5",    "E+",     "\\u",      "\\u00",  "00e9",     "\\n",
      "\\\"",    "é",        "\xC3", "\xA9",  "😀",      "\xF0\x9F", "name",   "name\":",  "\"name\": \"",
      "x-",      "\"x-y\":", "({",   "+",     "1+",     ")(",       "((",     "key\": [", "\": [\"",
      "\": {\"",
  };
  tokens.insert(tokens.end(), pieces.begin(), pieces.end());
  tokens.emplace_back();
  const TokenId end{static_cast<std::int32_t>(tokens.size() - 1)};
  return std::make_shared<const TokenVocabulary>(tokens, std::vector<TokenId>{end});
}

bool bytes_accepted(const Grammar& bytes_grammar, std::string_view before, std::string_view token) {
  const auto state = bytes_grammar.start();
  for (const char byte : before) {
    if (!state->accept(TokenId{static_cast<unsigned char>(byte)})) return false;
  }
  for (const char byte : token) {
    if (!state->accept(TokenId{static_cast<unsigned char>(byte)})) return false;
  }
  return true;
}

const std::vector<GrammarSpec>& specs() {
  static const std::vector<GrammarSpec> kAll = [] {
    std::vector<GrammarSpec> list;
    for (
        const char* schema : {
            R"({})",
            R"({"type":"object"})",
            R"({"type":"array","items":{"type":"integer"},"maxItems":3})",
            R"({"type":"object","properties":{"a":{"type":"string","maxLength":4},"b":{"type":"number"},"name":{"enum":["ab","abc",1]}},
                 "required":["b"],"additionalProperties":false})",
            R"({"type":"object","patternProperties":{"^x-":{"type":"string"}},"properties":{"a":{"type":"integer"}},"additionalProperties":false})",
            R"({"type":"object","properties":{"name":{"type":"string","pattern":"^[a-c]+$","minLength":2}},"maxProperties":2})",
            R"({"type":"object","additionalProperties":{"type":"array","items":{"type":"string"}},"minProperties":1})",
            R"({"anyOf":[{"type":"integer","minimum":3,"maximum":40},{"type":"array","items":{"$ref":"#"}},{"type":"null"}]})",
            R"({"type":"object","propertyNames":{"maxLength":2},"not":{"required":["a"]}})",
            R"({"type":"array","contains":{"type":"string"},"maxContains":1})",
        }) {
      list.push_back(schema_spec(schema));
    }
    list.push_back(text_spec(GrammarSpec::Kind::kEbnf,
                             "root ::= e\ne ::= e \"+\" t | t\nt ::= [0-9]+ | \"(\" e \")\" | \"name\""));
    list.push_back(text_spec(GrammarSpec::Kind::kGbnf,
                             "root ::= \"[\" (s (\",\" s)*)? \"]\"\ns ::= \"\\\"\" [^\"\\\\]* \"\\\"\" | root"));
    list.push_back(text_spec(GrammarSpec::Kind::kRegex, "(abc|[é😀]+|a{2,4}b?)*"));
    GrammarSpec tags;
    tags.kind = GrammarSpec::Kind::kStructural;
    tags.tags = {{"({", R"({"type":"object"})", "})"}, {"((", R"({"type":"number"})", ")"}};
    list.push_back(tags);
    return list;
  }();
  return kAll;
}

TEST_CASE("masks agree with bytes on every token, along random walks") {
  const auto vocabulary = crossing_vocabulary();
  GrammarLimits limits;
  limits.max_spaces = GENERATE(512U, 9U, 3U, 0U);
  INFO("runs of " << limits.max_spaces);
  const GrammarCompiler compiler(vocabulary, limits);
  const GrammarCompiler byte_compiler(byte_vocabulary(), limits);
  std::mt19937 random(7);
  for (const GrammarSpec& spec : specs()) {
    INFO(spec.text);
    const auto grammar = compiler.compile(spec);
    REQUIRE(grammar.has_value());
    const auto bytes_compiled = byte_compiler.compile(spec);
    REQUIRE(bytes_compiled.has_value());
    const auto& bytes_grammar = *bytes_compiled;
    for (int walk = 0; walk < 6; ++walk) {
      const auto state = (*grammar)->start();
      std::string text;
      for (int step = 0; step < 14; ++step) {
        const auto mask = mask_of(*state, *vocabulary);
        std::vector<TokenId> allowed;
        for (std::int32_t id = 0; id + 1 < static_cast<std::int32_t>(vocabulary->size()); ++id) {
          const bool expected = bytes_accepted(*bytes_grammar, text, vocabulary->bytes(TokenId{id}));
          if (in_mask(mask, TokenId{id}) != expected) {
            INFO("after " << text << " the token " << vocabulary->bytes(TokenId{id}));
            CHECK(in_mask(mask, TokenId{id}) == expected);
          }
          if (!expected) continue;
          // Pieces of several bytes make for more varied walks than single ones.
          allowed.insert(allowed.end(), id < 256 ? 1 : 6, TokenId{id});
        }
        const bool may_end = in_mask(mask, vocabulary->end_tokens().front());
        CHECK((may_end || !allowed.empty()));
        CHECK(state->finished() == (may_end && allowed.empty()));
        if (allowed.empty()) break;
        const TokenId chosen = allowed[std::uniform_int_distribution<std::size_t>(0, allowed.size() - 1)(random)];
        REQUIRE(state->accept(chosen));
        text += vocabulary->bytes(chosen);
      }
    }
  }
}

TEST_CASE("a refused token leaves the state as it was") {
  const auto grammar =
      compiled(schema_spec(R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false})"));
  const auto state = grammar->start();
  REQUIRE(state->accept(TokenId{'{'}));
  const auto before = mask_of(*state, *byte_vocabulary());
  CHECK_FALSE(state->accept(TokenId{'x'}));
  CHECK_FALSE(state->accept(byte_vocabulary()->end_tokens().front()));
  CHECK_FALSE(state->accept(TokenId{100000}));
  CHECK(mask_of(*state, *byte_vocabulary()) == before);
}

TEST_CASE("a long text is followed to its end") {
  const auto grammar =
      compiled(schema_spec(R"({"type":"object","additionalProperties":{"type":"array","items":{"type":"integer"}}})"));
  const auto state = grammar->start();
  const auto take = [&](std::string_view text) {
    for (const char byte : text) {
      if (!state->accept(TokenId{static_cast<unsigned char>(byte)})) return false;
    }
    return true;
  };
  REQUIRE(take(R"({"once":[0)"));
  for (int i = 0; i < 20000; ++i)
    REQUIRE(take(",1"));
  REQUIRE(take(R"(],"twice")"));
  REQUIRE(take(R"(:[],"on)"));
  CHECK_FALSE(take("ce\""));
  REQUIRE(take("cé"));
  CHECK(take(R"(":[]})"));
  CHECK(state->finished());
}

TEST_CASE("forced text is found, up to the last token that could go on otherwise") {
  const auto grammar = compiled(
      schema_spec(R"({"type":"object","properties":{"identifier":{"type":"integer"}},"additionalProperties":false})"));
  const auto state = grammar->start();
  CHECK(state->forced_tokens().empty());  // one byte, "{", which longer tokens could begin with
  for (const char byte : std::string_view("{\""))
    REQUIRE(state->accept(TokenId{static_cast<unsigned char>(byte)}));
  std::string forced;
  for (const TokenId token : state->forced_tokens()) {
    forced += byte_vocabulary()->bytes(token);
    REQUIRE(state->accept(token));
  }
  CHECK(forced == "identifier");
}

TEST_CASE("forced text is in the usual spelling, though others are allowed") {
  const auto grammar = compiled(schema_spec(R"({"enum":["a/\"éb\u0001","a/\"éb\n"]})"));
  const auto state = grammar->start();
  REQUIRE(state->accept(TokenId{'"'}));
  std::string forced;
  for (const TokenId token : state->forced_tokens()) {
    forced += byte_vocabulary()->bytes(token);
    REQUIRE(state->accept(token));
  }
  CHECK(forced == R"(a/\"é)");
  CHECK(accepts(*grammar, R"("\u0061\/\u0022\u00E9b\u000a")"));
  CHECK_FALSE(accepts(*grammar, R"("\u0062\/\u0022\u00E9b\u000a")"));
}

TEST_CASE("a real vocabulary's masks allow what is accepted, and nothing else") {
  QUIRE_REQUIRE_MATERIAL(path, "tokenizers/hf/llama3/tokenizer.json.gz");
  const auto vocabulary = read_vocabulary(path);
  REQUIRE(vocabulary->size() > 128000);
  const GrammarCompiler compiler(vocabulary);
  const auto grammar = compiler.compile(schema_spec(
      R"({"type":"object","properties":{"id":{"type":"integer"},"tag":{"type":"string","maxLength":12}},"required":["id"]})"));
  REQUIRE(grammar.has_value());
  const std::string text = R"({"id": 12, "tag": "some text", "other": [1.5, {"id": null}]})";
  for (std::size_t cut = 0; cut < text.size(); cut += 3) {
    const auto walk = [&] {
      auto state = (*grammar)->start();
      for (const char byte : text.substr(0, cut)) {
        // Every single byte is a token of this vocabulary.
        TokenId token{-1};
        for (std::int32_t id = 0; id < 256 && token.value < 0; ++id) {
          if (vocabulary->bytes(TokenId{id}) == std::string_view(&byte, 1)) token = TokenId{id};
        }
        REQUIRE(state->accept(token));
      }
      return state;
    };
    auto state = walk();
    const auto mask = mask_of(*state, *vocabulary);
    for (std::int32_t id = static_cast<std::int32_t>(cut); id < 128000; id += 211) {
      if (vocabulary->bytes(TokenId{id}).empty()) continue;
      auto tried = walk();
      INFO("after " << text.substr(0, cut) << " the token " << vocabulary->bytes(TokenId{id}));
      CHECK(tried->accept(TokenId{id}) == in_mask(mask, TokenId{id}));
    }
  }
}

}  // namespace
}  // namespace quire::test
