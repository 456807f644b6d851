// AddedTokens: finds the tokens that are taken whole from a text before all other steps: control tokens in trusted text
// only, user-defined ones everywhere. Immutable after construction; any thread. Invariant: the results of split(), in
// order, cover the text exactly.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/ids.h"

namespace quire {

struct AddedToken {
  std::string content;
  TokenId id;
  bool special = false;      // a control token: found in trusted text only
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // the spaces before it belong to it
  bool rstrip = false;       // the spaces after it belong to it
  bool normalized = false;   // looked for in the normalised text
};

class AddedTokens {
 public:
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct Part {
    Range range;
    std::int32_t token = -1;  // an id, or -1 for text between tokens
  };

  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);  // later tokens replace earlier ones of the same content

  bool empty() const { return tokens_.empty(); }
  std::size_t longest() const;  // bytes of the longest token
  // Whether the spaces around some token belong to it, however many there are.
  bool takes_spaces() const;
  // Splits `text` into tokens and the text between them: at each place the longest token wins. A special token counts
  // only inside one of the `trusted` ranges, which are in order and apart. Time: text times the longest token.
  void split(std::string_view text, std::span<const Range> trusted, std::vector<Part>& parts) const;

 private:
  struct Node {
    std::int32_t token = -1;  // an index into tokens_
    std::vector<std::pair<std::uint8_t, std::int32_t>> edges;
  };

  std::int32_t child(std::int32_t node, std::uint8_t byte) const;
  const AddedToken* longest_at(std::string_view text, std::size_t at, std::size_t trusted_end) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> first_{};  // the root's edges; -1: none
};

}  // namespace quire
