#include "core/grammar/mask/trie.h"

#include <algorithm>

namespace quire::grammar {

Trie::Trie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end());
  std::vector<std::uint32_t> open{0};  // the nodes on the way to the last text
  nodes_.push_back(Node{0, 0, 0});
  std::string_view last;
  const auto close_down_to = [&](std::size_t depth) {
    while (open.size() > depth + 1) {
      nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
      open.pop_back();
    }
  };
  for (const auto& [text, token] : entries) {
    const auto differ = std::mismatch(text.begin(), text.end(), last.begin(), last.end());
    close_down_to(static_cast<std::size_t>(differ.first - text.begin()));
    for (std::size_t i = open.size() - 1; i < text.size(); ++i) {
      open.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back(Node{0, static_cast<std::uint32_t>(tokens_.size()), static_cast<std::uint8_t>(text[i])});
    }
    tokens_.push_back(token);
    last = text;
  }
  close_down_to(0);
  nodes_[0].end = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back(Node{0, static_cast<std::uint32_t>(tokens_.size()), 0});
}

}  // namespace quire::grammar
