#include "core/draft/prompt_lookup.h"

#include <algorithm>

namespace quire {

namespace {

constexpr std::int64_t kMostReserved = 4096;  // tokens; the memory of longer texts grows by doubling

}  // namespace

DraftStrength PromptLookup::propose(std::span<const TokenId> tokens, std::size_t most, std::int64_t& read_budget,
                                    std::vector<TokenId>& drafts) {
  drafts.clear();
  if (!read(tokens, read_budget)) return DraftStrength::kWeak;
  const SuffixAutomaton::Match match = automaton_.match();
  if (match.length < kShortestMatch) return DraftStrength::kWeak;
  const auto next = static_cast<std::size_t>(first_ + match.end);
  // If the text repeats itself, the draft continues with its own tokens.
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t position = next + i;
    const TokenId token = position < tokens.size() ? tokens[position] : drafts[position - tokens.size()];
    drafts.push_back(token);
  }
  return match.length >= kStrongMatch ? DraftStrength::kStrong : DraftStrength::kWeak;
}

// False if the budget ends before the tokens do.
bool PromptLookup::read(std::span<const TokenId> tokens, std::int64_t& budget) {
  const auto num_tokens = static_cast<std::int64_t>(tokens.size());
  std::int64_t position = first_ + automaton_.num_tokens();
  if (num_tokens - first_ > kMostIndexed) {
    first_ = num_tokens - kMostIndexed / 2;
    automaton_.clear();
    position = first_;
  }
  const std::int64_t end = std::min(num_tokens, position + std::max<std::int64_t>(budget, 0));
  if (position == 0 && end > 0) automaton_.reserve(std::min(std::max(expected_tokens_, num_tokens), kMostReserved));
  budget -= end - position;
  for (; position < end; ++position)
    automaton_.append(tokens[static_cast<std::size_t>(position)]);
  return end == num_tokens;
}

}  // namespace quire
