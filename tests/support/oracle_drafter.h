// OracleDrafter: a drafter that knows the coming text, and proposes the share of right tokens that a test asks for. One
// thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/draft/drafter.h"

namespace quire::test {

// The texts to come, by request and choice.
using KnownTexts = std::map<std::pair<std::string, std::int32_t>, std::vector<TokenId>>;

// The draft for a place of the text: right with `percent` in a hundred, decided by the place; a wrong one is another
// token below num_tokens.
inline TokenId oracle_draft(std::span<const TokenId> text, std::size_t place, std::uint32_t percent,
                            std::int32_t num_tokens) {
  std::uint32_t random = (static_cast<std::uint32_t>(place) + 0x9E3779B9U) * 2654435761U;
  random = (random ^ (random >> 15)) * 0x85EBCA6BU >> 3;
  const TokenId truth = place < text.size() ? text[place] : TokenId{0};
  const TokenId wrong{(truth.value + 1 + static_cast<std::int32_t>(random >> 20)) % num_tokens};
  return random % 100 < percent ? truth : wrong;
}

class OracleDrafter final : public Drafter {
 public:
  OracleDrafter(std::vector<TokenId> text, std::size_t num_prompt, std::uint32_t percent, std::int32_t num_tokens)
      : text_(std::move(text)), num_prompt_(num_prompt), percent_(percent), num_tokens_(num_tokens) {}

  DraftStrength propose(std::span<const TokenId> tokens, std::size_t most, std::int64_t&,
                        std::vector<TokenId>& drafts) override {
    drafts.clear();
    for (std::size_t i = 0; i < most; ++i)
      drafts.push_back(oracle_draft(text_, tokens.size() - num_prompt_ + i, percent_, num_tokens_));
    return DraftStrength::kStrong;  // strong even if they are wrong
  }

  // Drafts for requests with known texts, which must outlive the engine.
  static DrafterFactory factory(const KnownTexts& texts, std::uint32_t percent, std::int32_t num_tokens) {
    return [&texts, percent, num_tokens](const Request& request, std::int32_t choice) -> std::unique_ptr<Drafter> {
      const auto found = texts.find({request.id, choice});
      if (found == texts.end()) return nullptr;
      return std::make_unique<OracleDrafter>(found->second, request.prompt.size(), percent, num_tokens);
    };
  }

 private:
  const std::vector<TokenId> text_;
  const std::size_t num_prompt_;
  const std::uint32_t percent_;
  const std::int32_t num_tokens_;
};

}  // namespace quire::test
