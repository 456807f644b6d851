// The fields of llama-server's /completion and /infill. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace llama {

inline constexpr Field kPrompt{
    "prompt", one_of("string|array|object"), R"("x")",
    "a text, token ids, a list of both, or several such prompts (the answer is an array); for models that see, an "
    "object with prompt_string, whose markers <__media__> stand for the images of multimodal_data, in base64"};
inline constexpr Field kNProbs{"n_probs", integer(0, 100), "2", "0 to 100, as completion_probabilities"};
inline constexpr Field kReturnTokens{"return_tokens", boolean(), "true",
                                     "token ids without stream; a stream always has them"};
inline constexpr Field kTimingsPerToken{"timings_per_token", boolean(), "true"};
inline constexpr Field kResponseFields{"response_fields", texts(64), R"(["content","generation_settings/seed"])"};
inline constexpr Field kInputPrefix{"input_prefix", text(), R"("x")", "required; for models that fill in the middle",
                                    Support::kConditional};
inline constexpr Field kInputSuffix{"input_suffix", text(), R"("x")", "required; for models that fill in the middle",
                                    Support::kConditional};
inline constexpr Field kInputExtra{"input_extra", array(), R"([{"filename":"a.py","text":"x"}])",
                                   "context files, for models that fill in the middle", Support::kConditional};

}  // namespace llama

extern const FieldTable kLlamaFields;
extern const FieldTable kInfillFields;

}  // namespace quire::fields
