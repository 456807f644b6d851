// TokenTrie: finds the tokens at a place of a text by walking it byte by byte. Immutable once built; any thread.
// Invariant: the children of a node are sorted by their byte, so that a step costs O(log 256).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace quire {

class TokenTrie {
 public:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kRoot = 0;

  TokenTrie() : TokenTrie(std::span<const std::string>{}) {}
  // `texts` by id; an empty text is no entry. Of equal texts the lowest id is kept.
  explicit TokenTrie(std::span<const std::string> texts);

  std::int32_t child(std::int32_t node, char byte) const;  // kNone: no token continues with this byte
  std::int32_t token(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)].token; }

 private:
  struct Node {
    std::uint32_t first_edge = 0;
    std::uint32_t num_edges = 0;
    std::int32_t token = kNone;
  };

  std::vector<Node> nodes_;
  std::vector<std::uint8_t> bytes_;    // bytes of the edges, by node
  std::vector<std::int32_t> targets_;  // target nodes of the edges
  std::array<std::int32_t, 256> from_root_{};
};

}  // namespace quire
