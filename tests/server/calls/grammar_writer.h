// GrammarWriter: a text as it grows under a grammar, one byte a token. One thread at a time. Invariant: the text is one
// that the grammar lets a model begin with.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/grammar.h"
#include "tests/server/fake_tokenizer.h"

namespace quire::test {

class GrammarWriter {
 public:
  explicit GrammarWriter(const Grammar& grammar) : state_(grammar.start()), tried_(grammar.start()) {}

  const std::string& text() const { return text_; }
  bool may_end() { return allows(kEos); }
  bool write(char c) {
    if (!state_->accept(TokenId{static_cast<unsigned char>(c)})) return false;
    text_ += c;
    return true;
  }
  // Writes all of the text, or nothing.
  bool write(std::string_view text) {
    tried_->assign(*state_);
    for (const char c : text) {
      if (!tried_->accept(TokenId{static_cast<unsigned char>(c)})) return false;
    }
    for (const char c : text)
      write(c);
    return true;
  }
  char any_allowed(std::mt19937& random) {
    std::vector<char> allowed;
    // Tries other bytes only if the text must continue with a mark's.
    for (int c = 1; c < 256 && (c < 128 || allowed.empty()); ++c) {
      if (allows(TokenId{c})) allowed.push_back(static_cast<char>(c));
    }
    INFO(text_);
    REQUIRE_FALSE(allowed.empty());
    return allowed[random() % allowed.size()];
  }

 private:
  bool allows(TokenId token) {
    std::vector<std::uint32_t> mask(9);
    state_->fill_mask(mask);
    const auto bit = static_cast<std::uint32_t>(token.value);
    return (mask[bit / 32] >> (bit % 32) & 1U) != 0;
  }

  std::unique_ptr<GrammarState> state_;
  std::unique_ptr<GrammarState> tried_;
  std::string text_;
};

}  // namespace quire::test
