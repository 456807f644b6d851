// Trie: texts and the tokens they stand for, as nodes in preorder. Immutable after construction.
// Node 0 is the root; the children of node i are i + 1, end(i + 1), ... up to end(i); the tokens of a subtree are
// contiguous.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::grammar {

class Trie {
 public:
  struct Node {
    std::uint32_t end;          // the node after this subtree
    std::uint32_t first_token;  // into tokens()
    std::uint8_t byte;
  };
  using Entry = std::pair<std::string_view, std::int32_t>;

  Trie() : Trie(std::vector<Entry>{}) {}
  explicit Trie(std::vector<Entry> entries);
  std::size_t num_bytes() const { return nodes_.size() * sizeof(Node) + tokens_.size() * sizeof(std::int32_t); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()) - 1; }
  const Node& operator[](std::uint32_t node) const { return nodes_[node]; }
  // The tokens whose text ends at the node.
  std::span<const std::int32_t> tokens_at(std::uint32_t node) const {
    return std::span(tokens_).subspan(nodes_[node].first_token,
                                      nodes_[node + 1].first_token - nodes_[node].first_token);
  }
  std::span<const std::int32_t> tokens_below(std::uint32_t node) const {
    return std::span(tokens_).subspan(nodes_[node].first_token,
                                      nodes_[nodes_[node].end].first_token - nodes_[node].first_token);
  }

 private:
  std::vector<Node> nodes_;  // ends with an extra node, which ends the last one's tokens
  std::vector<std::int32_t> tokens_;
};

// Whether all of the tokens are in a mask.
inline bool all_in(std::span<const std::uint32_t> mask, std::span<const std::int32_t> tokens) {
  return std::all_of(tokens.begin(), tokens.end(), [mask](std::int32_t token) {
    return (mask[static_cast<std::size_t>(token) / 32] >> token % 32 & 1) != 0;
  });
}

}  // namespace quire::grammar
