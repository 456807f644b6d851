// UnigramModel: the most likely sequence of tokens that spells a word (SentencePiece's unigram model, by Viterbi over
// all tokens at all places). Immutable after construction; any thread, each with a Scratch of its own. Invariants: time
// is the word's length times the longest token's; of equally likely sequences the one found first wins, always the
// same.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/text/tokenizer/token_trie.h"

namespace quire {

// Distance of an unknown character's score below the lowest token's, as in SentencePiece.
inline constexpr double kUnknownPenalty = 10;

struct UnigramOptions {
  std::int32_t unknown = -1;   // its id; -1: unknown characters are left out
  double unknown_score = 0;    // score of an unknown character
  bool byte_fallback = false;  // an unknown character becomes its bytes' tokens, if all of them exist
  std::array<std::int32_t, 256> byte_tokens{};
};

class UnigramModel {
 public:
  struct Place {
    double score;
    std::int32_t token;   // kUnknown: one unknown character
    std::uint32_t begin;  // begin of that token
  };
  struct Scratch {
    std::vector<Place> best;      // by the byte at which a sequence ends
    std::vector<TokenId> tokens;  // a word's tokens, last first
  };

  // `texts` and `scores` by id; an empty text is never produced.
  UnigramModel(std::span<const std::string> texts, std::vector<double> scores, UnigramOptions options)
      : options_(options), trie_(texts), scores_(std::move(scores)) {}

  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  static constexpr std::int32_t kUnknown = -1;

  void find_best(std::string_view word, std::vector<Place>& best) const;
  bool push_bytes(std::string_view characters, std::vector<TokenId>& tokens) const;

  UnigramOptions options_;
  TokenTrie trie_;
  std::vector<double> scores_;
};

}  // namespace quire
