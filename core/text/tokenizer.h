// Tokenizer: text to token ids and token ids to bytes. Immutable after construction; any thread.
// Invariant: special tokens are found only in text that the caller trusts; user text can never forge one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace quire {

// A piece of text. Special tokens written in it are taken as tokens (template text) or as plain characters (user text).
// Adjacent pieces are tokenized as one text: merges run across their boundaries.
struct TextPiece {
  std::string text;
  bool trusted = false;
};

// Tokens that a model's file puts around a pair of texts: first, text, between, text, last.
struct PairTokens {
  std::span<const TokenId> first;
  std::span<const TokenId> between;
  std::span<const TokenId> last;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // add_special: adds the tokens that the model's file puts around a prompt (BOS, EOS). Invalid UTF-8 is encoded like
  // U+FFFD.
  virtual std::vector<TokenId> encode(std::span<const TextPiece> pieces, bool add_special) const = 0;
  std::vector<TokenId> encode(std::string_view text, bool add_special, bool parse_special) const;

  // Encodes a text of at most `most` tokens; nullopt if it has more. A much longer text is recognised by its length or
  // after its first words.
  virtual std::optional<std::vector<TokenId>> encode_at_most(std::span<const TextPiece> pieces, bool add_special,
                                                             std::size_t most) const;

  virtual std::int32_t vocab_size() const = 0;
  // The bytes a token stands for in running text ("▁the" is " the", "<0xE2>" is one byte); a special token's own text.
  // Empty for ids out of range.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  virtual bool is_special(TokenId id) const = 0;  // control and unknown tokens: not part of the text
  virtual std::optional<TokenId> find_token(std::string_view text) const = 0;  // by its exact text in the vocabulary
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::span<const TokenId> end_of_generation() const = 0;  // eos, eot, ... : each ends a generation
  virtual PairTokens pair_tokens() const { return {}; }
  virtual std::span<const TokenId> suppressed() const { return {}; }  // never generated, by the model's file
  // True if decoding drops one leading space of a text's first token (SentencePiece's dummy prefix).
  virtual bool strips_leading_space() const = 0;
};

}  // namespace quire
