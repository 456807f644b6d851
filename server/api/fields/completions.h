// The fields of OpenAI's completions, and of vLLM's generation from token ids. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace completions {

inline constexpr Field kParseSpecial{
    "parse_special", boolean(), "false",
    "true (default): control tokens written in a text are read as tokens; false: as text"};
inline constexpr Field kPrompt{"prompt", one_of("string|array"), R"("x")",
                               "a string, strings, token ids, lists of token ids"};
inline constexpr Field kEcho{"echo", boolean(), "true"};
inline constexpr Field kLogprobs{"logprobs", integer(0, kMostLogprobs), "1", "0 to 20"};
inline constexpr Field kBestOf{"best_of", integer(0, kMostChoices), "1", "not with stream if larger than n"};
inline constexpr Field kSuffix{"suffix", text(), R"("x")",
                               "the text after the gap, for models that fill in the middle; others refuse it",
                               Support::kConditional};
inline constexpr Field kTokenIds{"token_ids", token_ids(), "[97]", "required: the prompt"};
inline constexpr Field kSamplingParams{"sampling_params", object(), R"({"max_tokens":3})",
                                       "the fields of a completion that concern sampling and constraints; max_tokens "
                                       "is 16 by default, logprobs come as a chat's"};
inline constexpr Field kStream{"stream", boolean(), "true", "events with the tokens as they come, as vLLM's"};
inline constexpr Field kStreamOptions{"stream_options", object(), R"({"include_usage":true})", "with 'stream' only"};
inline constexpr Field kRequestId{"request_id", text(kMostHintBytes), R"("r")", "the answer repeats it"};
inline constexpr Field kCacheSalt{"cache_salt", text(), R"("s")", "prefixes are shared within one salt only"};
inline constexpr Field kPriority{"priority", integer(-kMostInt32, kMostInt32), "1", "lower runs earlier"};

}  // namespace completions

extern const FieldTable kCompletionFields;
extern const FieldTable kTokenGenerationFields;

}  // namespace quire::fields
