// DRY: the penalty of a token that would continue a repetition of earlier text. Any thread. Source: the sampler of this
// name by p-e-w (text-generation-webui, 2024).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace quire {

struct DryParams {
  float multiplier = 0.0F;  // 0: off
  float base = 1.75F;
  std::int32_t allowed_length = 2;
  std::int32_t penalty_last_n = -1;            // -1: the whole context
  std::vector<std::vector<TokenId>> breakers;  // token sequences that end a repetition
};

struct DryPenalty {
  TokenId token;
  float penalty;
};

struct DryScratch {
  std::vector<std::size_t> lengths;
  std::vector<DryPenalty> found;
};

// The tokens that would continue a repetition at the end of `tokens`, each once, by ascending id. O(tokens). The result
// lies in the scratch.
std::span<const DryPenalty> dry_penalties(const DryParams& params, std::span<const TokenId> tokens,
                                          DryScratch& scratch);

}  // namespace quire
