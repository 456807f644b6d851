// Drafter: proposes tokens that may continue a sequence, for the model to verify. Engine thread only. Its proposals
// change the speed of the answer, never its text. May throw std::bad_alloc, after which it is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/request/request.h"

namespace quire {

// Strength of evidence for a proposal: each has an acceptance rate of its own.
enum class DraftStrength : std::uint8_t { kWeak, kStrong };
inline constexpr std::size_t kNumDraftStrengths = 2;

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Replaces `drafts` by at most `most` tokens that may follow `tokens`, the prompt and the generated tokens, which
  // only grow from call to call. Reads at most `read_budget` new tokens, and subtracts them from it; proposes nothing
  // before it has read all of them.
  virtual DraftStrength propose(std::span<const TokenId> tokens, std::size_t most, std::int64_t& read_budget,
                                std::vector<TokenId>& drafts) = 0;
};

// Makes the drafter of a request's choice; null: the choice is not drafted.
using DrafterFactory = std::function<std::unique_ptr<Drafter>(const Request& request, std::int32_t choice)>;

}  // namespace quire
