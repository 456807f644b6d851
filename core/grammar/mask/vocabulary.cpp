#include "core/grammar/mask/vocabulary.h"

#include <algorithm>
#include <utility>

namespace quire {

namespace {

std::vector<std::string> text_tokens(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  const auto ends = tokenizer.end_of_generation();
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool is_end = std::find(ends.begin(), ends.end(), TokenId{id}) != ends.end();
    if (!is_end && !tokenizer.is_special(TokenId{id}))
      bytes[static_cast<std::size_t>(id)] = tokenizer.token_bytes(TokenId{id});
  }
  return bytes;
}

}  // namespace

TokenVocabulary::TokenVocabulary(const Tokenizer& tokenizer)
    : TokenVocabulary(text_tokens(tokenizer),
                      {tokenizer.end_of_generation().begin(), tokenizer.end_of_generation().end()}) {}

TokenVocabulary::TokenVocabulary(const std::vector<std::string>& bytes, std::vector<TokenId> end_tokens)
    : end_tokens_(std::move(end_tokens)) {
  std::sort(end_tokens_.begin(), end_tokens_.end());
  offsets_.push_back(0);
  for (const std::string& text : bytes) {
    blob_ += text;
    offsets_.push_back(blob_.size());
    longest_ = std::max(longest_, text.size());
  }
  std::vector<grammar::Trie::Entry> entries;
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    const TokenId token{static_cast<std::int32_t>(id)};
    if (!bytes[id].empty() && !is_end(token)) entries.emplace_back(this->bytes(token), token.value);
  }
  trie_ = grammar::Trie(std::move(entries));
}

TokenVocabulary TokenVocabulary::bytes_only() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes.emplace_back(1, static_cast<char>(byte));
  bytes.emplace_back();
  return TokenVocabulary(bytes, {TokenId{256}});
}

std::string_view TokenVocabulary::bytes(TokenId token) const {
  if (token.value < 0 || static_cast<std::size_t>(token.value) >= size()) return {};
  const auto id = static_cast<std::size_t>(token.value);
  return std::string_view(blob_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
}

bool TokenVocabulary::is_end(TokenId token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

}  // namespace quire
