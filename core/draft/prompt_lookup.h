// PromptLookup: proposes the tokens that followed an earlier occurrence of the sequence's last tokens, in its prompt or
// its answer. Engine thread only. Memory: at most 128 bytes per token of the last kMostIndexed, which is little beside
// their keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/draft/drafter.h"
#include "core/draft/suffix_automaton.h"

namespace quire {

class PromptLookup final : public Drafter {
 public:
  static constexpr std::int64_t kMostIndexed = 32'768;  // beyond it, only the last half is kept
  static constexpr std::int32_t kShortestMatch = 3;
  static constexpr std::int32_t kStrongMatch = 8;

  // expected_tokens: length of the finished sequence; memory for it is reserved at once, within bounds.
  explicit PromptLookup(std::int64_t expected_tokens) : expected_tokens_(expected_tokens) {}

  DraftStrength propose(std::span<const TokenId> tokens, std::size_t most, std::int64_t& read_budget,
                        std::vector<TokenId>& drafts) override;

 private:
  bool read(std::span<const TokenId> tokens, std::int64_t& budget);

  SuffixAutomaton automaton_;
  const std::int64_t expected_tokens_;
  std::int64_t first_ = 0;  // position of the first token in the automaton
};

}  // namespace quire
