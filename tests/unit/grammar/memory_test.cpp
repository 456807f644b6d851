// The memory of grammars is bounded: their tables, and the states that are prepared while texts are followed.
#include <catch2/catch.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "tests/unit/grammar/support/check.h"

namespace quire::test {
namespace {

using Kind = GrammarSpec::Kind;

// Some hundred KiB of tables, other ones for each number.
GrammarSpec costly(int number) {
  return text_spec(Kind::kRegex,
                   "([a-z]{0,400}x" + std::to_string(number) + "|[0-9]{0,400}y" + std::to_string(number) + ")");
}

WorkLimit work_of(const std::string& client) {
  return WorkLimit({}, {}, client);
}

GrammarLimits small_limits() {
  GrammarLimits limits;
  limits.max_bytes = std::size_t{4} << 20;
  limits.max_client_bytes = std::size_t{2} << 20;
  return limits;
}

}  // namespace

TEST_CASE("grammars in use take no more than their memory, in all and of one client") {
  const GrammarLimits limits = small_limits();
  const GrammarCompiler compiler(byte_vocabulary(), limits);
  std::vector<std::shared_ptr<const Grammar>> in_use;
  int number = 0;
  const auto fill = [&](const std::string& client) {
    while (true) {
      auto grammar = compiler.compile(costly(number++), work_of(client));
      CHECK(compiler.memory().num_bytes <= limits.max_bytes);
      if (!grammar) return grammar.error();
      in_use.push_back(*grammar);
      REQUIRE(in_use.size() < 1000);
    }
  };
  const Error first = fill("a");
  CHECK(first.kind == ErrorKind::kRateLimited);
  CHECK(first.retry_after.has_value());
  const std::size_t num_of_a = in_use.size();
  CHECK(num_of_a > 1);
  // Another client has its own share, and compiled grammars are shared by all.
  CHECK(compiler.compile(costly(0), work_of("b")).has_value());
  fill("b");
  const Error full = fill("c");
  CHECK(full.kind == ErrorKind::kUnavailable);
  CHECK(full.code == "server_overloaded");
  // Refusals for lack of memory are not kept.
  in_use.erase(in_use.begin(), in_use.begin() + static_cast<std::ptrdiff_t>(num_of_a));
  CHECK(compiler.compile(costly(number - 1), work_of("c")).has_value());
}

TEST_CASE("a client that compiles many grammars pushes its own out of the cache") {
  GrammarLimits limits;
  limits.max_cached_grammars = 4;
  const GrammarCompiler compiler(byte_vocabulary(), limits);
  std::stop_source stopped;
  stopped.request_stop();
  // With a stopped token a compilation ends at once, while a cached grammar is still returned.
  const auto is_cached = [&](int number, const char* client) {
    return compiler.compile(costly(number), WorkLimit({}, stopped.get_token(), client)).has_value();
  };
  REQUIRE(compiler.compile(costly(0), work_of("b")));
  for (int number = 1; number < 8; ++number)
    REQUIRE(compiler.compile(costly(number), work_of("a")));
  CHECK(is_cached(0, "b"));
  CHECK(is_cached(7, "a"));
  CHECK_FALSE(is_cached(1, "a"));
}

TEST_CASE("a text is refused before its syntax tree takes many times its bytes") {
  const GrammarCompiler compiler(byte_vocabulary());
  GrammarSpec choice;
  choice.kind = Kind::kChoice;
  GrammarSpec tags;
  tags.kind = Kind::kStructural;
  tags.tags.push_back({});
  tags.tags[0].schema = "{}";
  for (const std::size_t length : {std::size_t{1'000}, grammar::Budget::kMostNodes + 1}) {
    const std::string text(length, 'a');
    choice.choices = {text, "b"};
    tags.tags[0].begin = text;
    const std::string in_json = R"({"type":"string","pattern":"^)" + text + R"($"})";
    const std::vector<GrammarSpec> specs = {choice,
                                            tags,
                                            text_spec(Kind::kRegex, text),
                                            text_spec(Kind::kGbnf, "root ::= \"" + text + "\""),
                                            text_spec(Kind::kEbnf, "root ::= \"" + text + "\""),
                                            schema_spec(in_json)};
    for (const GrammarSpec& spec : specs) {
      INFO(static_cast<int>(spec.kind) << ", " << length);
      const auto grammar = compiler.compile(spec, {});
      const bool is_too_large = !grammar && grammar.error().message.find("too large together") != std::string::npos;
      CHECK(is_too_large == (length > grammar::Budget::kMostNodes));
      CHECK(grammar.has_value() == (length < grammar::Budget::kMostNodes));
    }
  }
}

TEST_CASE("grammars that are only kept give way to those in use, of one client to its own") {
  const GrammarCompiler compiler(byte_vocabulary(), small_limits());
  REQUIRE(compiler.compile(costly(1'000), work_of("b")).has_value());
  for (int number = 0; number < 40; ++number)
    CHECK(compiler.compile(costly(number), work_of("a")).has_value());
  std::stop_source given_up;
  given_up.request_stop();
  const auto is_kept = [&](int number) {
    return compiler.compile(costly(number), WorkLimit({}, given_up.get_token())).has_value();
  };
  CHECK(is_kept(39));
  CHECK_FALSE(is_kept(0));
  CHECK(is_kept(1'000));
}

TEST_CASE("what is prepared for a grammar is bounded, and made again with the same masks") {
  GrammarLimits limits;
  limits.max_prepared_bytes = std::size_t{256} << 10;
  const GrammarCompiler bounded(byte_vocabulary(), limits);
  const GrammarCompiler free(byte_vocabulary());
  const GrammarSpec spec = GENERATE(text_spec(Kind::kJsonSchema, R"({"type":"string","pattern":"^[a-z]{0,2000}$"})"),
                                    text_spec(Kind::kRegex, "\"([a-z]{3}[0-9]?){0,500}\""));
  const auto bounded_state = (*bounded.compile(spec))->start();
  const auto free_state = (*free.compile(spec))->start();
  std::vector<std::uint32_t> mask(byte_vocabulary()->num_mask_words());
  std::vector<std::uint32_t> expected(mask.size());
  std::string text = "\"";
  for (int i = 0; i < 1'200; ++i)
    text += static_cast<char>('a' + i % 26);
  int num_different = 0;
  int num_over = 0;
  for (const char byte : text) {
    bounded_state->fill_mask(mask);
    free_state->fill_mask(expected);
    num_different += mask == expected ? 0 : 1;
    num_over += bounded.memory().num_prepared_bytes > limits.max_prepared_bytes ? 1 : 0;
    const TokenId token{static_cast<std::int32_t>(static_cast<unsigned char>(byte))};
    REQUIRE(bounded_state->accept(token));
    REQUIRE(free_state->accept(token));
  }
  CHECK(num_different == 0);
  CHECK(num_over == 0);
  CHECK(free.memory().num_prepared_bytes > 2 * limits.max_prepared_bytes);
}

}  // namespace quire::test
