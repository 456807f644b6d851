// TextTokenizer: the only Tokenizer, for all file formats: find added tokens, normalise, cut into words, spell each
// word in tokens. Immutable after construction; any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/text/tokenizer.h"
#include "core/text/tokenizer/added_tokens.h"
#include "core/text/tokenizer/merge_model.h"
#include "core/text/tokenizer/normalizer.h"
#include "core/text/tokenizer/pre_tokenizer.h"
#include "core/text/tokenizer/unigram_model.h"
#include "core/text/tokenizer/word_piece_model.h"

namespace quire {

// Model that spells a word in tokens.
using WordModel = std::variant<MergeModel, UnigramModel, WordPieceModel>;

// Tokens that add_special puts around a text, and those around a pair.
struct SurroundingTokens {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
  std::vector<TokenId> pair_first;
  std::vector<TokenId> pair_between;
  std::vector<TokenId> pair_last;
};

struct TextTokenizerParts {
  AddedTokens added;  // found in the text as it was written
  Normalizer normalizer;
  AddedTokens added_normalized;  // found in the normalised text; none of them special
  PreTokenizer pre_tokenizer;
  std::optional<WordModel> model;  // always there once built
  SurroundingTokens around;
  TextIndex names;                 // ids by the exact text in the vocabulary
  std::vector<std::string> bytes;  // by id; see Tokenizer::token_bytes
  std::vector<bool> special;       // by id
  std::optional<TokenId> bos;
  std::vector<TokenId> end_of_generation;
  std::vector<TokenId> suppressed;
  bool strips_leading_space = false;
};

class TextTokenizer final : public Tokenizer {
 public:
  explicit TextTokenizer(TextTokenizerParts parts);

  using Tokenizer::encode;
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, bool add_special) const override;
  std::optional<std::vector<TokenId>> encode_at_most(std::span<const TextPiece> pieces, bool add_special,
                                                     std::size_t most) const override;

  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(parts_.bytes.size()); }
  std::string_view token_bytes(TokenId id) const override;
  bool is_special(TokenId id) const override;
  std::optional<TokenId> find_token(std::string_view text) const override;
  std::optional<TokenId> bos() const override { return parts_.bos; }
  std::span<const TokenId> end_of_generation() const override { return parts_.end_of_generation; }
  PairTokens pair_tokens() const override {
    return {parts_.around.pair_first, parts_.around.pair_between, parts_.around.pair_last};
  }
  std::span<const TokenId> suppressed() const override { return parts_.suppressed; }
  bool strips_leading_space() const override { return parts_.strips_leading_space; }

 private:
  struct Run;  // memory of a call
  void encode_fragment(std::string_view fragment, bool at_start, Run& run) const;
  void encode_words(std::string_view text, bool at_start, Run& run) const;

  TextTokenizerParts parts_;
  std::size_t longest_ = 0;  // most bytes of text per token; 0: unbounded
};

// Texts of tokens that end a generation in the chat formats in use, if a vocabulary has them as control tokens.
bool is_end_of_generation_text(std::string_view text);
// The tokens of these texts in a vocabulary. "<|end|>" is left out if a vocabulary has tokens that end a turn rather
// than a message (Harmony, Solar).
std::vector<TokenId> ends_by_text(const TextIndex& names);
// Puts the file's own end first, the form that templates write; then the others by id, each once.
void put_in_order(std::vector<TokenId>& ends, std::optional<TokenId> own);

// The byte that a token's name stands for: "<0x0A>" is 10.
std::optional<std::uint8_t> byte_token_value(std::string_view text);

}  // namespace quire
