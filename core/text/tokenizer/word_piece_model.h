// WordPieceModel: a word as the longest token that begins it, then the longest that continues it, and so on (BERT).
// A word that cannot be spelt to its end is one unknown token. Immutable after construction; any thread. Invariant:
// time is the word's length times the longest token's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/text/tokenizer/token_trie.h"

namespace quire {

struct WordPieceOptions {
  std::int32_t unknown = -1;          // its id; -1: unknown words are left out
  std::int32_t bare_start = -1;       // a token that begins any word and spells nothing of it
  std::size_t most_characters = 100;  // a longer word is unknown
};

class WordPieceModel {
 public:
  // The texts that begin a word and those that continue it, without their marks, both by id; empty if none.
  WordPieceModel(std::span<const std::string> starts, std::span<const std::string> continuations,
                 WordPieceOptions options)
      : options_(options), starts_(starts), continuations_(continuations) {}

  void encode(std::string_view word, std::vector<TokenId>& out) const;

 private:
  bool spell(std::string_view word, std::vector<TokenId>& out) const;

  WordPieceOptions options_;
  TokenTrie starts_;
  TokenTrie continuations_;
};

}  // namespace quire
