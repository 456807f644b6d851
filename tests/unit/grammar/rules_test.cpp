#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/grammar/support/check.h"

namespace quire::test {
namespace {

using Kind = GrammarSpec::Kind;

TEST_CASE("left recursion and ambiguity are understood") {
  const auto sums = compiled(
      text_spec(Kind::kEbnf, "root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9]+ | \"(\" expr \")\""));
  CHECK(accepts(*sums, "1+22+(3+4)"));
  CHECK_FALSE(accepts(*sums, "1+"));
  CHECK_FALSE(accepts(*sums, "(1"));
  const auto hidden =
      compiled(text_spec(Kind::kEbnf, "root ::= a\na ::= empty a \"x\" | \"y\"\nempty ::= \"\" | \"e\""));
  CHECK(accepts(*hidden, "yxx"));
  CHECK(accepts(*hidden, "eyx"));
  CHECK_FALSE(accepts(*hidden, "ey"));
}

TEST_CASE("a compilation stops at its limit, and can be made again without one") {
  const GrammarCompiler compiler(byte_vocabulary());
  std::string source = "root ::= ";
  for (int i = 0; i < 400; ++i)
    source +=
        std::string(i == 0 ? "" : " | ") + "[a-z]{1," + std::to_string(20 + i) + "} \"" + std::to_string(i) + "\"";
  const GrammarSpec spec = text_spec(Kind::kGbnf, source);
  std::stop_source given_up;
  given_up.request_stop();
  const auto stopped = compiler.compile(spec, WorkLimit({}, given_up.get_token()));
  REQUIRE_FALSE(stopped);
  CHECK(stopped.error().code == WorkLimit::kCode);
  CHECK_FALSE(compiler.compile(spec, WorkLimit(std::chrono::milliseconds(0), {})));
  // It is the work that was given up, not the grammar.
  const auto whole = compiler.compile(spec);
  CHECK((whole || whole.error().code != WorkLimit::kCode));
  CHECK(compiler.compile(spec, WorkLimit({}, given_up.get_token())).has_value() == whole.has_value());
}

TEST_CASE("what could not be compiled is remembered, as many and as much as may be") {
  GrammarLimits limits;
  limits.max_steps = 3'000;
  limits.max_cached_grammars = 2;
  limits.max_cached_bytes = 1'000;
  const GrammarCompiler compiler(byte_vocabulary(), limits);
  std::stop_source given_up;
  given_up.request_stop();
  const WorkLimit stopped({}, given_up.get_token());
  const auto costly = [](int number) {
    return text_spec(Kind::kRegex, "([a-z]{1,40}[0-9]{1,40}){1," + std::to_string(number) + "}");
  };
  // A kept refusal is given without work, so a limit that is reached already does not matter.
  const auto is_kept = [&](const GrammarSpec& spec) {
    const auto again = compiler.compile(spec, stopped);
    return !again && again.error().code != WorkLimit::kCode;
  };
  const auto refused = compiler.compile(costly(40));
  REQUIRE_FALSE(refused);
  CHECK(compiler.compile(costly(40), stopped).error().message == refused.error().message);
  CHECK_FALSE(compiler.compile(costly(41)));
  CHECK_FALSE(compiler.compile(costly(42)));
  CHECK(is_kept(costly(42)));
  CHECK(is_kept(costly(41)));
  CHECK_FALSE(is_kept(costly(40)));
  GrammarSpec wide = costly(43);
  wide.text += std::string(1'000, 'x');
  CHECK_FALSE(compiler.compile(wide));
  CHECK_FALSE(is_kept(wide));
  // A kept refusal is charged for the name in it, and evicts older refusals.
  const auto refuse_place = [&](std::size_t length) {
    const std::string name(length, 'x');
    const auto refusal =
        compiler.compile(text_spec(Kind::kJsonSchema, R"({"properties":{")" + name + R"(":{"$ref":"#/nowhere"}}})"));
    REQUIRE_FALSE(refusal);
    REQUIRE(refusal.error().param.size() > length);
  };
  CHECK_FALSE(compiler.compile(costly(44)));
  refuse_place(50);
  CHECK(is_kept(costly(44)));
  refuse_place(300);
  CHECK_FALSE(is_kept(costly(44)));
}

TEST_CASE("nesting is balanced and deep recursion stays cheap") {
  const auto nested = compiled(text_spec(Kind::kGbnf, "root ::= \"(\" root \")\" | [^()]*"));
  const std::string deep = std::string(500, '(') + "x" + std::string(500, ')');
  CHECK(accepts(*nested, deep));
  CHECK_FALSE(accepts(*nested, deep + ")"));
}

TEST_CASE("rules that may be empty many times over are followed once each") {
  std::string source = "root ::= r0\n";
  for (int i = 0; i < 16; ++i)
    source += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  GrammarLimits limits;
  limits.max_trial_bytes = 0;  // a long text would be refused
  const GrammarCompiler compiler(byte_vocabulary(), limits);
  const auto grammar = compiler.compile(text_spec(Kind::kGbnf, source + "r16 ::= \"a\" | \"\""));
  REQUIRE(grammar);
  CHECK(accepts(**grammar, "aaa"));
  CHECK_FALSE(accepts(**grammar, "ab"));
}

TEST_CASE("GBNF reads as llama.cpp writes it") {
  const std::string source = R"(# a list
root  ::= "[" ws ( item ("," ws item)* )? "]"
item  ::=
  "\"" [a-z\x41-\x43]{1,3} "\""
  | number
number ::= "-"? [0-9]+   # digits
ws ::= [ \t\n]*
)";
  const auto list = compiled(text_spec(Kind::kGbnf, source));
  CHECK(accepts(*list, R"([ "ab",-12, "A"])"));
  CHECK_FALSE(accepts(*list, R"(["abcd"])"));
  CHECK_THAT(refusal(text_spec(Kind::kGbnf, "root ::= missing")), Catch::Matchers::Contains("missing"));
  CHECK_THAT(refusal(text_spec(Kind::kGbnf, "root ::= \"a\n")), Catch::Matchers::Contains("line 1"));
  CHECK_THAT(refusal(text_spec(Kind::kGbnf, "root ::= root")), Catch::Matchers::Contains("no text"));
}

TEST_CASE("GBNF's lines end as on any system, and its tokens are named by number or text") {
  const auto lines = compiled(text_spec(Kind::kGbnf, "root ::= \"a\" b # one\r\n  | \"d\"\r\n\r\nb ::= \"c\"\r\n"));
  CHECK(accepts(*lines, "ac"));
  CHECK(accepts(*lines, "d"));
  const auto tokens = compiled(text_spec(Kind::kGbnf, "root ::= <[97]> !<[98]> <think> (!<[60]>)* \"</think>\""));
  CHECK(accepts(*tokens, "ac<think>hm</think>"));
  CHECK_FALSE(accepts(*tokens, "ab<think>hm</think>"));
  CHECK_THAT(refusal(text_spec(Kind::kGbnf, "root ::= <[999999]>")), Catch::Matchers::Contains("no token 999999"));
  CHECK_THAT(refusal(text_spec(Kind::kGbnf, "root ::= <[a]>")), Catch::Matchers::Contains("malformed token"));
}

TEST_CASE("a group right after a rule's name is no macro in GBNF") {
  const std::string source = "root ::= item(\",\" item)*\nitem ::= [a-z]";
  const auto grammar = compiled(text_spec(Kind::kGbnf, source));
  CHECK(accepts(*grammar, "a,b,c"));
  CHECK_FALSE(accepts(*grammar, "a(,b)"));
  CHECK_THAT(refusal(text_spec(Kind::kEbnf, source)), Catch::Matchers::Contains("the macro item"));
}

TEST_CASE("points in a row are as many characters, and no name") {
  const auto grammar = compiled(text_spec(Kind::kGbnf, "root ::= ... \"-\" b.c\nb.c ::= .\n"));
  CHECK(accepts(*grammar, "aé\n-z"));
  CHECK_FALSE(accepts(*grammar, "ab-z"));
}

TEST_CASE("a grammar that is too ambiguous to follow allows nothing any more, and says so") {
  constexpr int kDepth = 40;
  std::string text = "root ::= r0\n";
  for (int i = 0; i < kDepth; ++i)
    text += fmt::format("r{0} ::= r{1}? r{1}? \"x\"?\n", i, i + 1);
  const GrammarSpec spec = text_spec(Kind::kGbnf, text + fmt::format("r{} ::= \"y\"?\n", kDepth));
  GrammarLimits limits;
  limits.max_trial_bytes = 0;  // it would be refused
  const GrammarCompiler compiler(byte_vocabulary(), limits);
  const WorkLimit alices({}, {}, "alice");
  const auto grammar = compiler.compile(spec, alices);
  REQUIRE(grammar);
  const auto state = (*grammar)->start();
  std::vector<std::uint32_t> mask;
  for (int token = 0; token < 100 && !state->exhausted(); ++token) {
    mask = mask_of(*state, *byte_vocabulary());
    state->accept(TokenId{'x'});
  }
  REQUIRE(state->exhausted());
  mask = mask_of(*state, *byte_vocabulary());
  CHECK(std::all_of(mask.begin(), mask.end(), [](std::uint32_t word) { return word == 0; }));
  CHECK_FALSE(state->accept(TokenId{'x'}));
  CHECK(state->forced_tokens().empty());
  // The same client's next request with this grammar fails at once; another client's request is compiled.
  const auto again = compiler.compile(spec, alices);
  REQUIRE_FALSE(again);
  CHECK(again.error().code == "grammar_too_costly");
  CHECK(compiler.compile(spec, WorkLimit({}, {}, "bob")).has_value());
}

TEST_CASE("a rule that reads a text in too many ways is refused by its name") {
  const std::vector<std::string> sources = {
      "root ::= p\np ::= [a-z] p [a-z] | [a-z ]* p | p [a-z ]* | \"\"",
      "root ::= \"(\" p \")\"\np ::= [a-z] p [a-z] p [a-z] | p p [a-z] | [a-z]*",
      "root ::= p*\np ::= \"{\" p* \"}\" | \"[\" p* \"]\" | [^x]+ | p p",
  };
  for (const std::string& source : sources) {
    INFO(source);
    CHECK_THAT(refusal(text_spec(Kind::kGbnf, source)), Catch::Matchers::Contains("the rule \"p\" is too ambiguous"));
  }
}

TEST_CASE("ambiguous rules whose places read on alike are followed at a cost that does not grow") {
  const std::vector<std::string> sources = {
      "root ::= s\ns ::= \"a\" | s s",
      "root ::= s+\ns ::= [a-z]+",
      "root ::= s+\ns ::= [a-z]+ | [a-z]* \" \" | s s",
      "root ::= s\ns ::= [a-z ]* | s s s",
      "root ::= (a? b? c?)*\na ::= [a-z]*\nb ::= [a-z ]*\nc ::= [^x]*",
      "root ::= st\nst ::= \"if \" st | \"if \" st \"else \" st | [a-z ]+",
  };
  for (const std::string& source : sources) {
    INFO(source);
    const auto state = compiled(text_spec(Kind::kGbnf, source))->start();
    std::vector<std::uint32_t> mask;
    for (int token = 0; token < 2'000 && !state->exhausted(); ++token) {
      mask = mask_of(*state, *byte_vocabulary());
      REQUIRE(state->accept(TokenId{'a'}));
    }
    CHECK_FALSE(state->exhausted());
  }
}

TEST_CASE("a regular expression matches the whole text") {
  const auto phone = compiled(text_spec(Kind::kRegex, R"(\(?[0-9]{3}\)?-\d{4}|é+)"));
  CHECK(accepts(*phone, "(123)-4567"));
  CHECK(accepts(*phone, "éé"));
  CHECK_FALSE(accepts(*phone, "x123-4567"));
  CHECK_FALSE(accepts(*phone, "123-45678"));
}

TEST_CASE("a look-ahead inside a look-ahead sees past the end of it") {
  const auto both = compiled(text_spec(Kind::kRegex, "(?=a(?=b))..."));
  CHECK(accepts(*both, "abc"));
  CHECK_FALSE(accepts(*both, "acb"));
  const auto last = compiled(text_spec(Kind::kRegex, "[a-z]+b(?!(?=.)).*"));
  CHECK(accepts(*last, "aab"));
  CHECK_FALSE(accepts(*last, "aabc"));
}

TEST_CASE("a choice is one of its texts") {
  GrammarSpec spec;
  spec.kind = Kind::kChoice;
  spec.choices = {"yes", "yesterday", "no"};
  CHECK(accepts(spec, "yes"));
  CHECK(accepts(spec, "yesterday"));
  CHECK_FALSE(accepts(spec, "yester"));
  CHECK_FALSE(accepts(spec, ""));
}

TEST_CASE("tags in free text constrain what follows their trigger") {
  GrammarSpec spec;
  spec.kind = Kind::kStructural;
  spec.tags = {{"<call>{\"name\":\"f\",\"arguments\":",
                R"({"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]})", "}</call>"}};
  spec.triggers = {"<call>"};
  const std::string call = R"(<call>{"name":"f","arguments":{"x":1}}</call>)";
  CHECK(accepts(spec, "plain text with < and <cal"));
  CHECK(accepts(spec, "before " + call + " between " + call));
  CHECK_FALSE(accepts(spec, "<call>anything"));
  CHECK_FALSE(accepts(spec, R"(<call>{"name":"f","arguments":{"x":"1"}}</call>)"));
  spec.required = true;
  CHECK_FALSE(accepts(spec, "no call"));
  CHECK(accepts(spec, "one <<call" + call));
  spec.parallel = false;
  CHECK_FALSE(accepts(spec, call + call));
  spec.free_text = false;
  spec.parallel = true;
  spec.separator = ", ";
  CHECK(accepts(spec, call + ", " + call));
  CHECK_FALSE(accepts(spec, "text"));
}

}  // namespace
}  // namespace quire::test
