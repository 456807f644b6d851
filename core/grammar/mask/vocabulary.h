// TokenVocabulary: the bytes of a model's tokens, arranged for computing masks; built once per model and shared by all
// its grammars. Immutable after construction. Special tokens have no bytes here: a grammar never allows them, except
// those that end a generation once the text is complete.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/grammar/mask/trie.h"
#include "core/text/tokenizer.h"

namespace quire {

class TokenVocabulary {
 public:
  explicit TokenVocabulary(const Tokenizer& tokenizer);
  // bytes[id]: bytes of token `id` in running text, empty if it is not text. end_tokens: ids that end a
  // generation.
  TokenVocabulary(const std::vector<std::string>& bytes, std::vector<TokenId> end_tokens);
  // A token per byte, and an end token (id 256): for checking texts without a model.
  static TokenVocabulary bytes_only();

  std::size_t size() const { return offsets_.size() - 1; }
  std::size_t num_mask_words() const { return (size() + 31) / 32; }
  std::string_view bytes(TokenId token) const;
  bool is_end(TokenId token) const;
  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  const grammar::Trie& trie() const { return trie_; }
  std::size_t longest() const { return longest_; }  // bytes of the longest token

 private:
  std::string blob_;
  std::vector<std::size_t> offsets_;
  std::vector<TokenId> end_tokens_;
  std::size_t longest_ = 0;
  grammar::Trie trie_;
};

}  // namespace quire
