// The fields of Ollama's API. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace ollama {

inline constexpr Field kMessages{
    "messages", array(), R"([{"role":"user","content":"x"}])",
    "content, thinking, tool_calls with objects for arguments, tool_name; images for models that see"};
inline constexpr Field kFormat{"format", one_of("string|object"), R"({"type":"object"})", "json, or a schema"};
inline constexpr Field kOptions{"options", object(), R"({"temperature":0})", "see below"};
inline constexpr Field kStream{"stream", boolean(), "false", "true by default"};
inline constexpr Field kThink{"think", one_of("boolean|string"), "true",
                              "or low, medium, high; absent: the template's default"};
inline constexpr Field kKeepAlive{
    "keep_alive", one_of("string|number"), R"("5m")",
    "accepted; the operator decides how long models stay loaded. 0 without a prompt (an unload) is refused"};
inline constexpr Field kLogprobs{"logprobs", boolean(), "true"};
inline constexpr Field kTopLogprobs{"top_logprobs", integer(0, kMostLogprobs), "2", "needs logprobs",
                                    Support::kConditional};
inline constexpr Field kTruncate{"truncate", one_of("boolean|string"), "false",
                                 "true (default): leaves out the oldest turns of a chat that is too long"};
inline constexpr Field kPrompt{"prompt", text(), R"("x")", "a user message in the template"};
inline constexpr Field kSystem{"system", one_of("string|array"), R"("x")"};
inline constexpr Field kRaw{"raw", boolean(), "true", "true: the prompt without a template, control tokens included"};
inline constexpr Field kSuffix{"suffix", text(), R"("x")", "for models that fill in the middle", Support::kConditional};
inline constexpr Field kContext{"context", token_ids(), "[1,2]",
                                "the context of an earlier answer; its tokens go before the prompt"};
inline constexpr Field kImages{"images", array(), R"(["aGk="])", "for models that see: in base64, before the prompt",
                               Support::kConditional};
inline constexpr Field kNumPredict{"num_predict", integer(-2, kMostInt32), "5", "-1, -2: up to the context's end"};
inline constexpr Field kNumCtx{"num_ctx", integer(1, kMostInt32), "512",
                               "limits the request's context; the model's own limit still holds"};
inline constexpr Field kInput{"input", one_of("string|array"), R"(["x","y"])",
                              "a text or several; vectors are normalized"};
inline constexpr Field kTruncateText{"truncate", one_of("boolean|string"), "true",
                                     "true (default): cuts the end of a text that is too long"};
inline constexpr Field kDimensions{"dimensions", integer(1, kMostInt32), "2"};
inline constexpr Field kEmbeddedPrompt{"prompt", text(), R"("x")", "a text; its vector is not normalized"};

}  // namespace ollama

extern const FieldTable kOllamaChatFields;
extern const FieldTable kOllamaPromptFields;
extern const FieldTable kOllamaOptions;
extern const FieldTable kOllamaEmbedFields;
extern const FieldTable kOllamaEmbeddingFields;

}  // namespace quire::fields
