#include "core/text/tokenizer/added_tokens.h"

#include <algorithm>

#include "core/text/unicode.h"

namespace quire {
namespace {

// The character that ends at `end`.
char32_t character_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80)
    --begin;
  return unicode::decode(text.substr(begin, end - begin)).code;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool word_before = begin > 0 && unicode::is_word(character_before(text, begin));
  const bool word_after = end < text.size() && unicode::is_word(unicode::decode(text.substr(end)).code);
  return !word_before && !word_after;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  first_.fill(-1);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (content.empty()) continue;
    std::int32_t node = -1;
    for (const char c : content) {
      const auto byte = static_cast<std::uint8_t>(c);
      std::int32_t next = node < 0 ? first_[byte] : child(node, byte);
      if (next < 0) {
        next = static_cast<std::int32_t>(nodes_.size());
        nodes_.emplace_back();
        if (node < 0) {
          first_[byte] = next;
        } else {
          nodes_[static_cast<std::size_t>(node)].edges.emplace_back(byte, next);
        }
      }
      node = next;
    }
    nodes_[static_cast<std::size_t>(node)].token = static_cast<std::int32_t>(i);
  }
}

std::int32_t AddedTokens::child(std::int32_t node, std::uint8_t byte) const {
  for (const auto& [edge, target] : nodes_[static_cast<std::size_t>(node)].edges) {
    if (edge == byte) return target;
  }
  return -1;
}

const AddedToken* AddedTokens::longest_at(std::string_view text, std::size_t at, std::size_t trusted_end) const {
  const AddedToken* best = nullptr;
  std::int32_t node = first_[static_cast<std::uint8_t>(text[at])];
  for (std::size_t end = at + 1; node >= 0; ++end) {
    const std::int32_t index = nodes_[static_cast<std::size_t>(node)].token;
    if (index >= 0) {
      const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
      const bool allowed =
          (!token.special || end <= trusted_end) && (!token.single_word || stands_alone(text, at, end));
      if (allowed) best = &token;
    }
    if (end == text.size()) break;
    node = child(node, static_cast<std::uint8_t>(text[end]));
  }
  return best;
}

std::size_t AddedTokens::longest() const {
  std::size_t longest = 0;
  for (const AddedToken& token : tokens_)
    longest = std::max(longest, token.content.size());
  return longest;
}

bool AddedTokens::takes_spaces() const {
  return std::any_of(tokens_.begin(), tokens_.end(),
                     [](const AddedToken& token) { return token.lstrip || token.rstrip; });
}

void AddedTokens::split(std::string_view text, std::span<const Range> trusted, std::vector<Part>& parts) const {
  std::size_t done = 0;
  auto range = trusted.begin();
  for (std::size_t at = 0; !tokens_.empty() && at < text.size();) {
    if (first_[static_cast<std::uint8_t>(text[at])] < 0) {
      ++at;
      continue;
    }
    while (range != trusted.end() && range->end <= at)
      ++range;
    const bool inside = range != trusted.end() && range->begin <= at;
    const AddedToken* token = longest_at(text, at, inside ? range->end : 0);
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + token->content.size();
    while (token->lstrip && begin > done && unicode::is_space(character_before(text, begin))) {
      do
        --begin;
      while (begin > done && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
    }
    while (token->rstrip && end < text.size()) {
      const auto next = unicode::decode(text.substr(end));
      if (!unicode::is_space(next.code)) break;
      end += next.length;
    }
    if (begin > done) parts.push_back({{done, begin}, -1});
    parts.push_back({{begin, end}, token->id.value});
    at = done = end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, -1});
}

}  // namespace quire
