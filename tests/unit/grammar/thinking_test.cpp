// Reasoning sections before constrained text.
#include "core/grammar/thinking.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "tests/unit/grammar/support/check.h"

namespace quire::test {
namespace {

// Bytes, then the pieces below, then a token that ends.
class PieceTokenizer final : public Tokenizer {
 public:
  PieceTokenizer() {
    for (int byte = 0; byte < 256; ++byte)
      texts_.emplace_back(1, static_cast<char>(byte));
    for (const char* piece : {"</think>", "</think>\n", "k>", "k>{", "x</think>y", ""})
      texts_.emplace_back(piece);
    ends_ = {TokenId{vocab_size() - 1}};
  }
  using Tokenizer::encode;
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, bool) const override {
    std::vector<TokenId> tokens;
    for (const TextPiece& piece : pieces) {
      for (const char c : piece.text)
        tokens.push_back(TokenId{static_cast<unsigned char>(c)});
    }
    return tokens;
  }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(texts_.size()); }
  std::string_view token_bytes(TokenId id) const override { return texts_[static_cast<std::size_t>(id.value)]; }
  bool is_special(TokenId) const override { return false; }
  std::optional<TokenId> find_token(std::string_view text) const override {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i] == text) return TokenId{static_cast<std::int32_t>(i)};
    }
    return std::nullopt;
  }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::span<const TokenId> end_of_generation() const override { return ends_; }
  bool strips_leading_space() const override { return false; }

 private:
  std::vector<std::string> texts_;
  std::vector<TokenId> ends_;
};

std::shared_ptr<const PieceTokenizer> pieces() {
  static const auto kTokenizer = std::make_shared<const PieceTokenizer>();
  return kTokenizer;
}

std::shared_ptr<const Grammar> json_object() {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kJsonSchema;
  spec.text = R"({"type":"object"})";
  return *GrammarCompiler(std::make_shared<TokenVocabulary>(*pieces())).compile(spec);
}

const TokenId kEnd = pieces()->end_of_generation().front();

// Takes a text byte by byte.
bool take(GrammarState& state, std::string_view text) {
  for (const char c : text) {
    if (!state.accept(TokenId{static_cast<unsigned char>(c)})) return false;
  }
  return true;
}

bool allows(GrammarState& state, TokenId token) {
  std::vector<std::uint32_t> mask((static_cast<std::size_t>(pieces()->vocab_size()) + 31) / 32);
  state.fill_mask(mask);
  const auto id = static_cast<std::size_t>(token.value);
  return ((mask[id / 32] >> (id % 32)) & 1U) != 0;
}

bool allows(GrammarState& state, std::string_view text) {
  return allows(state, *pieces()->find_token(text));
}

std::string text_of(std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens)
    text += pieces()->token_bytes(token);
  return text;
}

ThinkingSection section(bool is_open, std::optional<std::int32_t> max_tokens = {}) {
  return {"<think>", "</think>", is_open, max_tokens};
}

}  // namespace

TEST_CASE("what is constrained begins after the reasoning, and not before it ended") {
  const auto state = allow_thinking(pieces(), section(true), json_object())->start();
  CHECK(allows(*state, "x"));
  CHECK_FALSE(allows(*state, kEnd));
  CHECK_FALSE(state->accept(kEnd));
  CHECK(allows(*state, "</think>"));
  REQUIRE(take(*state, "not {json} </thin"));
  CHECK(allows(*state, "k>"));
  CHECK_FALSE(state->finished());
  REQUIRE(take(*state, "k>"));
  CHECK(allows(*state, "{"));
  CHECK_FALSE(allows(*state, "x"));
  REQUIRE(take(*state, "{}"));
  CHECK(allows(*state, kEnd));
  CHECK(state->finished());
}

TEST_CASE("no token carries text from the reasoning into what is constrained") {
  const auto state = allow_thinking(pieces(), section(true), json_object())->start();
  CHECK_FALSE(allows(*state, "</think>\n"));
  CHECK_FALSE(allows(*state, "x</think>y"));
  CHECK_FALSE(state->accept(*pieces()->find_token("</think>\n")));
  CHECK(allows(*state, "k>{"));
  REQUIRE(take(*state, "</thin"));
  CHECK(allows(*state, "k>"));
  CHECK_FALSE(allows(*state, "k>{"));
  REQUIRE(take(*state, "g"));
  CHECK(allows(*state, "k>{"));
  // If no constrained text follows, they are allowed like any other token.
  const auto free = allow_thinking(pieces(), section(true), nullptr)->start();
  CHECK(allows(*free, "</think>\n"));
  CHECK(allows(*free, kEnd));
}

TEST_CASE("a budget forces the end of the reasoning, and of nothing else") {
  const auto state = allow_thinking(pieces(), section(true, 3), json_object())->start();
  REQUIRE(take(*state, "abc"));
  CHECK(text_of(state->forced_tokens()) == "</think>");
  CHECK_FALSE(allows(*state, "d"));
  REQUIRE(take(*state, "</th"));
  CHECK(text_of(state->forced_tokens()) == "ink>");
  CHECK(allows(*state, "i"));
  REQUIRE(take(*state, "ink>{}"));
  CHECK(state->finished());
  // A model that does not think is not interrupted.
  const auto plain = allow_thinking(pieces(), section(false, 3), nullptr)->start();
  REQUIRE(take(*plain, "an answer without reasoning"));
  CHECK(plain->forced_tokens().empty());
  CHECK(allows(*plain, "x"));
  // A model that opens the section itself is limited too.
  const auto thinking = allow_thinking(pieces(), section(false, 3), nullptr)->start();
  REQUIRE(take(*thinking, "\n<think>abc"));
  CHECK(text_of(thinking->forced_tokens()) == "</think>");
  const auto none = allow_thinking(pieces(), section(true, 0), nullptr)->start();
  CHECK(text_of(none->forced_tokens()) == "</think>");
}

TEST_CASE("without a section the grammar holds from the beginning") {
  const auto state = allow_thinking(pieces(), section(false, 3), json_object())->start();
  CHECK(allows(*state, "{"));
  CHECK_FALSE(allows(*state, "<"));
  REQUIRE(take(*state, "{}"));
  CHECK(state->finished());
}

TEST_CASE("looking ahead leaves the reasoning where it is") {
  const auto grammar = allow_thinking(pieces(), section(true, 12), json_object());
  const auto state = grammar->start();
  const auto ahead = grammar->start();
  REQUIRE(take(*state, "abc</thi"));
  ahead->assign(*state);
  REQUIRE(take(*ahead, "nk>{"));
  CHECK(allows(*ahead, "}"));
  CHECK(allows(*state, "x"));
  ahead->assign(*state);
  REQUIRE(take(*ahead, "xxxx"));
  CHECK(text_of(ahead->forced_tokens()) == "</think>");
  CHECK(state->forced_tokens().empty());
  REQUIRE(take(*state, "nk>{"));
  ahead->assign(*state);
  REQUIRE(take(*ahead, "}"));
  CHECK(ahead->finished());
  CHECK_FALSE(state->finished());
}

}  // namespace quire::test
