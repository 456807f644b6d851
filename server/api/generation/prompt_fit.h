// A prompt's tokens and the room that they leave: encoding, truncation, and the bounds that the model's context sets.
// Pure functions; any thread; meant for text threads, because encoding takes time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/text/fill_in_the_middle.h"
#include "server/api/common/served_model.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

// Refuses log probabilities of more prompt tokens than a response should hold, naming `param`.
Result<void> check_prompt_logprobs(std::int64_t num_prompt_tokens, const GenerationFields& fields,
                                   const std::string& param);

// Prompts up to this length are encoded whole, so that the refusal of a longer one can name its length.
std::int64_t most_counted_tokens(const ServedModel& model);
// Bound for a text that is only counted, or that is cut to a length after it was encoded.
std::int64_t most_read_tokens(const ServedModel& model);
// The refusal of a prompt of more than `most` tokens: 400 "context_length_exceeded".
Error far_too_long(const ServedModel& model, std::int64_t most, const std::string& prompt_param);

// The tokens of a prompt; `truncated`: it is cut to a length later, or only counted. A prompt of more than
// most_counted_tokens(), or most_read_tokens() if `truncated`, is refused before it is encoded whole.
Result<std::vector<TokenId>> encode_prompt(std::span<const TextPiece> pieces, bool add_special, bool truncated,
                                           const ServedModel& model, const std::string& prompt_param);

struct FittedPrompt {
  std::vector<TokenId> tokens;
  std::int32_t max_tokens = 0;  // limit of one choice
};

// A prompt's last, or first, tokens where `truncate_prompt_tokens` asks for it (-1: as many as leave room for
// max_tokens), and the new tokens that there is room for. Errors: it is empty, "context_length_exceeded".
Result<FittedPrompt> fit_prompt(std::vector<TokenId> tokens, const GenerationFields& fields, const ServedModel& model,
                                const std::string& prompt_param);

// The prompt of a fill-in-the-middle request. Leaves room for max_tokens, for a quarter of the context where that is
// absent. The tokens by which such a model ends the gap become stop tokens of the request. nullopt: the model has no
// tokens to fill in the middle.
std::optional<std::vector<TokenId>> infill_prompt(const ServedModel& model, const FimText& text,
                                                  GenerationFields& fields);

}  // namespace quire
