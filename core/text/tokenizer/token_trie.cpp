#include "core/text/tokenizer/token_trie.h"

#include <algorithm>

namespace quire {

TokenTrie::TokenTrie(std::span<const std::string> texts) {
  std::vector<std::int32_t> ids;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (!texts[id].empty()) ids.push_back(static_cast<std::int32_t>(id));
  }
  const auto text_of = [&](std::int32_t id) -> const std::string& { return texts[static_cast<std::size_t>(id)]; };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::int32_t left, std::int32_t right) { return text_of(left) < text_of(right); });

  // Nodes in breadth-first order; each holds the range of sorted texts that begin with its path.
  struct Range {
    std::size_t begin;
    std::size_t end;
    std::size_t depth;
  };
  std::vector<Range> ranges = {{0, ids.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && text_of(ids[begin]).size() == depth; ++begin) {
      if (nodes_[node].token < 0) nodes_[node].token = ids[begin];
    }
    nodes_[node].first_edge = static_cast<std::uint32_t>(bytes_.size());
    while (begin < end) {
      const char byte = text_of(ids[begin])[depth];
      std::size_t next = begin;
      while (next < end && text_of(ids[next])[depth] == byte)
        ++next;
      bytes_.push_back(static_cast<std::uint8_t>(byte));
      targets_.push_back(static_cast<std::int32_t>(nodes_.size()));
      nodes_.emplace_back();
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
    nodes_[node].num_edges = static_cast<std::uint32_t>(bytes_.size()) - nodes_[node].first_edge;
  }
  from_root_.fill(kNone);
  for (std::size_t edge = 0; edge < nodes_[0].num_edges; ++edge)
    from_root_[bytes_[edge]] = targets_[edge];
}

std::int32_t TokenTrie::child(std::int32_t node, char byte) const {
  const auto value = static_cast<std::uint8_t>(byte);
  if (node == kRoot) return from_root_[value];
  const Node& from = nodes_[static_cast<std::size_t>(node)];
  const auto begin = bytes_.begin() + from.first_edge;
  const auto end = begin + from.num_edges;
  const auto found = std::lower_bound(begin, end, value);
  return found == end || *found != value ? kNone : targets_[static_cast<std::size_t>(found - bytes_.begin())];
}

}  // namespace quire
