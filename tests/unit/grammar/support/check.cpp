#include "tests/unit/grammar/support/check.h"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "core/grammar/regex/charset.h"
#include "tests/support/material.h"

namespace quire::test {

const std::shared_ptr<const TokenVocabulary>& byte_vocabulary() {
  static const auto kVocabulary = std::make_shared<const TokenVocabulary>(TokenVocabulary::bytes_only());
  return kVocabulary;
}

std::shared_ptr<const TokenVocabulary> read_vocabulary(const std::string& path) {
  // GPT-2's alphabet: printable bytes stand for themselves, the others for code points from 256 on.
  std::map<char32_t, char> bytes;
  int extra = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    bytes[static_cast<char32_t>(printable ? byte : 256 + extra++)] = static_cast<char>(byte);
  }
  const auto json = nlohmann::json::parse(read_file(path));
  std::vector<std::string> tokens;
  for (const auto& [text, id] : json["model"]["vocab"].items()) {
    const auto index = id.get<std::size_t>();
    if (tokens.size() <= index) tokens.resize(index + 1);
    std::u32string points;
    grammar::decode_utf8(text, points);
    for (const char32_t c : points) {
      if (bytes.contains(c)) tokens[index].push_back(bytes[c]);
    }
  }
  tokens.emplace_back();
  const TokenId end{static_cast<std::int32_t>(tokens.size() - 1)};
  return std::make_shared<const TokenVocabulary>(tokens, std::vector<TokenId>{end});
}

GrammarSpec schema_spec(std::string schema) {
  return text_spec(GrammarSpec::Kind::kJsonSchema, std::move(schema));
}

GrammarSpec text_spec(GrammarSpec::Kind kind, std::string text) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = std::move(text);
  return spec;
}

std::shared_ptr<const Grammar> compiled(const GrammarSpec& spec) {
  const GrammarCompiler compiler(byte_vocabulary());
  auto grammar = compiler.compile(spec);
  if (!grammar) FAIL("refused: " << grammar.error().message);
  return *grammar;
}

std::string refusal(const GrammarSpec& spec) {
  const GrammarCompiler compiler(byte_vocabulary());
  const auto grammar = compiler.compile(spec);
  return grammar ? "" : grammar.error().message;
}

namespace {

bool take_all(GrammarState& state, std::string_view text) {
  for (const char byte : text) {
    const TokenId token{static_cast<unsigned char>(byte)};
    const bool offered = in_mask(mask_of(state, *byte_vocabulary()), token);
    const bool taken = state.accept(token);
    REQUIRE(offered == taken);
    if (!taken) return false;
  }
  return true;
}

}  // namespace

bool begins(const Grammar& grammar, std::string_view text) {
  return take_all(*grammar.start(), text);
}

bool accepts(const Grammar& grammar, std::string_view text) {
  const auto state = grammar.start();
  if (!take_all(*state, text)) return false;
  const TokenId end = byte_vocabulary()->end_tokens().front();
  const bool offered = in_mask(mask_of(*state, *byte_vocabulary()), end);
  REQUIRE(offered == state->accept(end));
  return offered;
}

bool accepts(const GrammarSpec& spec, std::string_view text) {
  return accepts(*compiled(spec), text);
}

bool in_mask(const std::vector<std::uint32_t>& mask, TokenId token) {
  return (mask[static_cast<std::size_t>(token.value) / 32] >> token.value % 32 & 1) != 0;
}

std::vector<std::uint32_t> mask_of(GrammarState& state, const TokenVocabulary& vocabulary) {
  std::vector<std::uint32_t> mask(vocabulary.num_mask_words(), 0xA5A5A5A5u);
  state.fill_mask(mask);
  return mask;
}

}  // namespace quire::test
