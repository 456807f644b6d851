// SpeculationOptions: the method of drafting: a server's default, or a request's choice. Plain; any thread. Drafting
// never changes a token of the answer, only how many tokens a step yields.
#pragma once

#include <cstdint>

namespace quire {

enum class SpeculationMethod : std::uint8_t {
  kNone,
  kNextTokens,    // the model's own block that predicts the token after next (MTP)
  kPromptLookup,  // tokens that followed an earlier occurrence of the last tokens
  kDraftModel,    // a smaller model of the same vocabulary
};

inline constexpr std::int32_t kMostDraftsOfSequence = 32;  // in a step

struct SpeculationOptions {
  SpeculationMethod method = SpeculationMethod::kNone;
  std::int32_t max_tokens = 8;  // per sequence and step, from 1 to kMostDraftsOfSequence

  bool operator==(const SpeculationOptions&) const = default;
};

}  // namespace quire
