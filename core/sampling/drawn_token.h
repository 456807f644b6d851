// DrawnToken: the result of drawing a row's token. Values; any thread.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/base/ids.h"

namespace quire {

struct TokenLogprob {
  TokenId token;
  float logprob = 0.0F;
  std::vector<std::pair<TokenId, float>> top;  // descending
};

// Result of drawing a token. No token: nothing is allowed, or one of the flags below is set.
struct DrawnToken {
  std::optional<TokenId> token{};
  std::optional<TokenLogprob> logprob{};  // log probability under the model's own distribution, if requested
  std::optional<float> observed{};        // value that SamplerState::observe() takes
  bool has_no_numbers = false;            // the allowed tokens' logits are no numbers
  bool out_of_memory = false;
};

}  // namespace quire
