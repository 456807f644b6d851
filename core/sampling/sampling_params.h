// The parameters by which each next token is sampled. Plain, immutable once in a Request; any thread. Defaults are
// OpenAI's neutral ones. Ranges are validated when the request is parsed; the sampler trusts them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/sampling/dry.h"
#include "core/sampling/filters.h"

namespace quire {

// Keeps the surprise of drawn tokens near `tau` bits (Basu et al., 2021); version 1 or 2.
struct MirostatParams {
  std::int32_t version = 0;  // 0: off
  float tau = 5.0F;
  float eta = 0.1F;  // learning rate
};

// Keeps the probability of the drawn tokens near a target on average (llama.cpp's adaptive-p).
struct AdaptiveParams {
  float target = -1.0F;  // negative: off
  float decay = 0.9F;    // weight of earlier draws; at most 0.99
};

struct SamplingParams : Filters {
  float temperature = 1.0F;       // 0: greedy
  bool temperature_last = false;  // filters see the distribution before temperature, as in llama.cpp
  float repetition_penalty = 1.0F;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  // The three penalties count this many last tokens of prompt and text, as in llama.cpp (-1: all). Absent: repetition
  // counts all tokens, and the other two only generated ones, as in OpenAI and vLLM.
  std::optional<std::int32_t> penalty_last_n;
  std::int32_t min_keep = 0;    // typical_p, top_p, min_p and XTC leave at least this many tokens
  float dynatemp_range = 0.0F;  // temperature +- this, by the distribution's entropy; 0: off
  float dynatemp_exponent = 1.0F;
  MirostatParams mirostat;
  AdaptiveParams adaptive;
  // Steps that are not listed are off. Absent: the Sampler's own order.
  std::optional<std::vector<SamplerStep>> order;
  DryParams dry;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> allowed_token_ids;       // empty: all
  std::vector<std::vector<TokenId>> bad_words;  // token sequences that must not be completed
  std::optional<std::uint64_t> seed;            // absent: the engine draws one
  std::optional<std::int32_t> num_logprobs;     // absent: none; k: the sampled token's and the top k
  std::optional<std::int32_t> num_prompt_logprobs;

  std::int32_t max_tokens = 16;  // new tokens per choice
  std::int32_t min_tokens = 0;   // before it, end-of-sequence and stop tokens are forbidden
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;  // end the sequence, kept out of the text

  // Whether a draw depends on earlier draws, not only on the tokens: such a text is not drafted.
  bool follows_draws() const { return mirostat.version != 0 || adaptive.target >= 0.0F; }
  // Whether the samplers are applied one by one, as in llama.cpp.
  bool is_chained() const {
    return order || min_keep > 1 || dynatemp_range > 0.0F || follows_draws() || needs(DrawnBy::kChain);
  }
};

}  // namespace quire
