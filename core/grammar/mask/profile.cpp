#include "core/grammar/mask/profile.h"

#include <algorithm>
#include <utility>

namespace quire::grammar {

void TokenSet::seal(std::size_t num_words) {
  if (ids_.size() < num_words) return;
  words_.assign(num_words, 0);
  for (const std::int32_t id : ids_)
    words_[static_cast<std::size_t>(id) / 32] |= 1u << id % 32;
  ids_ = {};
}

void TokenSet::add_sealed(std::int32_t token) {
  if (!words_.empty()) {
    words_[static_cast<std::size_t>(token) / 32] |= 1u << token % 32;
  } else {
    ids_.push_back(token);
  }
}

void TokenSet::remove(std::int32_t token) {
  if (!words_.empty()) {
    words_[static_cast<std::size_t>(token) / 32] &= ~(1u << token % 32);
  } else {
    std::erase(ids_, token);
  }
}

void TokenSet::apply(std::span<std::uint32_t> mask) const {
  for (std::size_t i = 0; i < words_.size(); ++i)
    mask[i] |= words_[i];
  for (const std::int32_t id : ids_)
    mask[static_cast<std::size_t>(id) / 32] |= 1u << id % 32;
}

namespace {

// The characters spelled by the bytes inside a string.
std::u32string decode_content(std::string_view bytes) {
  std::u32string result;
  for (std::size_t i = 0; i < bytes.size();) {
    std::size_t length = 1;
    const auto lead = static_cast<unsigned char>(bytes[i]);
    if (lead == '\\') {
      length = bytes[i + 1] != 'u' ? 2 : (bytes[i + 2] | 0x20) == 'd' && (bytes[i + 3] >= '8') ? 12 : 6;
    } else if (lead >= 0xC0) {
      length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    }
    result.push_back(decode_json_character(bytes.substr(i, length)));
    i += length;
  }
  return result;
}

}  // namespace

Profile::Profile(ByteLexer& lexer, std::uint32_t state, const Lengths* lengths, const TokenVocabulary& vocabulary)
    : num_words_(vocabulary.num_mask_words()), within_(lexer.inside(state)) {
  struct Open {
    std::uint32_t end;
    std::uint32_t state;
    std::uint32_t length;
  };
  const Trie& trie = vocabulary.trie();
  std::vector<Open> open{{trie.size(), state, 0}};
  auto all = std::make_shared<TokenSet>();
  for (std::uint32_t node = 1; node < trie.size();) {
    while (node >= open.back().end)
      open.pop_back();
    const Open& from = open.back();
    const std::uint8_t byte = trie[node].byte;
    if (byte == '"' && !lexer.inside(from.state)) {
      if (lexer.accept(from.state) != 0)
        close(node, static_cast<std::uint32_t>(open.size()) - 1, from.length, vocabulary);
      node = trie[node].end;
      continue;
    }
    const std::uint32_t moved = lexer.step(from.state, byte);
    if (moved == 0) {
      node = trie[node].end;
      continue;
    }
    const std::uint32_t next = moved & ~ByteLexer::kCompletes;
    const std::uint32_t length = from.length + ((moved & ByteLexer::kCompletes) != 0 ? 1 : 0);
    const auto tokens = trie.tokens_at(node);
    if (!tokens.empty()) {
      all->add(tokens);
      if (lengths != nullptr) {
        std::uint32_t shortest = Lengths::kEndless;
        const std::uint32_t unfinished = lexer.inside(next) ? 1 : 0;
        lexer.for_each_target(next, [&](std::uint32_t target) {
          if (target != 0) shortest = std::min(shortest, lengths->shortest(target));
        });
        for (const std::int32_t token : tokens)
          by_need_.push_back({length + unfinished + shortest, token});
      }
    }
    open.push_back({trie[node].end, next, length});
    ++node;
  }
  all->seal(num_words_);
  all_ = std::move(all);
  std::stable_sort(by_need_.begin(), by_need_.end(), [](const Inside& a, const Inside& b) { return a.need > b.need; });
}

void Profile::close(std::uint32_t node, std::uint32_t depth, std::uint32_t length, const TokenVocabulary& vocabulary) {
  const auto tokens = vocabulary.trie().tokens_below(node);
  if (tokens.empty()) return;
  contents_.push_back(within_ ? U"" : decode_content(vocabulary.bytes(TokenId{tokens.front()}).substr(0, depth)));
  for (const std::int32_t token : tokens) {
    closings_.push_back({vocabulary.bytes(TokenId{token}).substr(depth + 1), token, length,
                         static_cast<std::uint32_t>(contents_.size() - 1)});
  }
}

std::size_t Profile::num_bytes() const {
  std::size_t sum = sizeof(Profile) + all_->num_bytes() + by_need_.size() * sizeof(Inside);
  sum += closings_.size() * sizeof(Closing);
  for (const std::u32string& content : contents_)
    sum += sizeof(content) + content.size() * sizeof(char32_t);
  return sum;
}

std::shared_ptr<const TokenSet> Profile::inside(std::uint32_t room) const {
  if (by_need_.empty() || by_need_.front().need <= room) return all_;
  const auto first_kept =
      std::partition_point(by_need_.begin(), by_need_.end(), [&](const Inside& i) { return i.need > room; });
  auto kept = std::make_shared<TokenSet>();
  if (first_kept - by_need_.begin() < by_need_.end() - first_kept) {
    *kept = *all_;
    for (auto item = by_need_.begin(); item != first_kept; ++item)
      kept->remove(item->token);
  } else {
    for (auto item = first_kept; item != by_need_.end(); ++item)
      kept->add(item->token);
    kept->seal(num_words_);
  }
  return kept;
}

}  // namespace quire::grammar
