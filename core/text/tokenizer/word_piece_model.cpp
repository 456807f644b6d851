#include "core/text/tokenizer/word_piece_model.h"

#include <algorithm>

namespace quire {
namespace {

struct Longest {
  std::int32_t token = TokenTrie::kNone;
  std::size_t size = 0;
};

Longest longest_at_front(const TokenTrie& trie, std::string_view text) {
  Longest longest;
  std::int32_t node = TokenTrie::kRoot;
  for (std::size_t size = 0; size < text.size();) {
    node = trie.child(node, text[size++]);
    if (node < 0) break;
    if (trie.token(node) >= 0) longest = {trie.token(node), size};
  }
  return longest;
}

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

bool WordPieceModel::spell(std::string_view word, std::vector<TokenId>& out) const {
  Longest piece = longest_at_front(starts_, word);
  if (piece.token < 0) piece.token = options_.bare_start;
  while (piece.token >= 0) {
    out.push_back(TokenId{piece.token});
    word.remove_prefix(piece.size);
    if (word.empty()) return true;
    piece = longest_at_front(continuations_, word);
  }
  return false;
}

void WordPieceModel::encode(std::string_view word, std::vector<TokenId>& out) const {
  const std::size_t begin = out.size();
  if (num_characters(word) <= options_.most_characters && spell(word, out)) return;
  out.resize(begin);
  if (options_.unknown >= 0) out.push_back(TokenId{options_.unknown});
}

}  // namespace quire
