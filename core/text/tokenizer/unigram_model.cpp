#include "core/text/tokenizer/unigram_model.h"

#include <algorithm>
#include <limits>

#include "core/text/unicode.h"

namespace quire {

void UnigramModel::find_best(std::string_view word, std::vector<Place>& best) const {
  best.assign(word.size() + 1, {-std::numeric_limits<double>::infinity(), kUnknown, 0});
  best[0].score = 0;
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t length = unicode::decode(word.substr(begin)).length;
    const double so_far = best[begin].score;
    const auto offer = [&](std::size_t end, std::int32_t token, double score) {
      if (so_far + score > best[end].score) best[end] = {so_far + score, token, static_cast<std::uint32_t>(begin)};
    };
    bool has_character = false;
    std::int32_t node = TokenTrie::kRoot;
    for (std::size_t end = begin; end < word.size();) {
      node = trie_.child(node, word[end++]);
      if (node < 0) break;
      const std::int32_t token = trie_.token(node);
      if (token < 0) continue;
      has_character = has_character || end - begin == length;
      offer(end, token, scores_[static_cast<std::size_t>(token)]);
    }
    if (!has_character) offer(begin + length, kUnknown, options_.unknown_score);
    begin += length;
  }
}

// Last byte first, as the tokens of a word are gathered.
bool UnigramModel::push_bytes(std::string_view characters, std::vector<TokenId>& tokens) const {
  const auto token_of = [&](char c) { return options_.byte_tokens[static_cast<unsigned char>(c)]; };
  if (!options_.byte_fallback ||
      !std::all_of(characters.begin(), characters.end(), [&](char c) { return token_of(c) >= 0; })) {
    return false;
  }
  for (std::size_t at = characters.size(); at > 0; --at)
    tokens.push_back(TokenId{token_of(characters[at - 1])});
  return true;
}

void UnigramModel::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  find_best(word, scratch.best);
  scratch.tokens.clear();
  bool after_unknown = false;
  for (std::size_t end = word.size(); end > 0;) {
    const Place& place = scratch.best[end];
    const bool unknown = place.token == kUnknown;
    if (!unknown) {
      scratch.tokens.push_back(TokenId{place.token});
    } else if (!push_bytes(word.substr(place.begin, end - place.begin), scratch.tokens)) {
      // Neighbouring unknown characters share one token.
      if (options_.unknown >= 0 && !after_unknown) scratch.tokens.push_back(TokenId{options_.unknown});
    }
    after_unknown = unknown;
    end = place.begin;
  }
  out.insert(out.end(), scratch.tokens.rbegin(), scratch.tokens.rend());
}

}  // namespace quire
