// Profile: the effect of every token when it is read inside a JSON string from one state of its lexer: it stays inside,
// with the least number of characters that the text then has, or it closes the string, with the content before that.
// Immutable after construction. Masks for any bounds on the length, and for any key automaton that takes all texts, are
// cut from profiles without walking the vocabulary again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/machine/byte_lexer.h"
#include "core/grammar/machine/lengths.h"
#include "core/grammar/mask/vocabulary.h"

namespace quire::grammar {

// A set of tokens, stored as a list or as a bitmask, the smaller of both.
class TokenSet {
 public:
  void add(std::int32_t token) { ids_.push_back(token); }
  void add(std::span<const std::int32_t> tokens) { ids_.insert(ids_.end(), tokens.begin(), tokens.end()); }
  void remove(std::int32_t token);      // after seal()
  void add_sealed(std::int32_t token);  // after seal()
  void seal(std::size_t num_words);
  void apply(std::span<std::uint32_t> mask) const;
  std::size_t num_bytes() const { return sizeof(std::uint32_t) * (ids_.size() + words_.size()); }

 private:
  std::vector<std::int32_t> ids_;
  std::vector<std::uint32_t> words_;
};

class Profile {
 public:
  // A token that closes the string: `length` characters, then the quote, then `rest`.
  struct Closing {
    std::string_view rest;
    std::int32_t token;
    std::uint32_t length;
    std::uint32_t content;  // index of contents()
  };

  // lengths: those of the lexer's automaton, if dense; null: no bound will be asked about.
  Profile(ByteLexer& lexer, std::uint32_t state, const Lengths* lengths, const TokenVocabulary& vocabulary);

  // Tokens that stay inside if the text may have `room` more characters.
  std::shared_ptr<const TokenSet> inside(std::uint32_t room) const;
  const std::vector<Closing>& closings() const { return closings_; }
  // Contents before the quote, for profiles that begin between two characters.
  const std::vector<std::u32string>& contents() const { return contents_; }
  std::size_t num_bytes() const;

 private:
  struct Inside {
    std::uint32_t need;  // characters of the token and of the shortest completion after it
    std::int32_t token;
  };
  void close(std::uint32_t node, std::uint32_t depth, std::uint32_t length, const TokenVocabulary& vocabulary);

  std::shared_ptr<const TokenSet> all_;
  std::vector<Inside> by_need_;  // longest first
  std::vector<Closing> closings_;
  std::vector<std::u32string> contents_;
  std::size_t num_words_ = 0;
  bool within_ = false;  // the state is inside a character: the content is then unknown
};

}  // namespace quire::grammar
