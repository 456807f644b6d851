// The fields of Anthropic's Messages API. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace messages {

inline constexpr Field kMaxTokens{"max_tokens", integer(1, kMostInt32), "5", "required"};
inline constexpr Field kMessages{
    "messages", array(), R"([{"role":"user","content":[{"type":"text","text":"x"}]}])",
    "text, thinking, tool_use and tool_result blocks, documents (text, blocks, base64, url, file; PDF where "
    "media.pdf.enabled is set), search results; for models that see, images (base64, url, file), also in documents and "
    "tool results; other media are refused, blocks of Anthropic's own tools are left out with a warning"};
inline constexpr Field kSystem{"system", one_of("string|array"), R"([{"type":"text","text":"x"}])",
                               "a string or text blocks; a text that begins with `x-anthropic-billing-header:` differs "
                               "in each request and is left out"};
inline constexpr Field kStopSequences{"stop_sequences", texts(kMostStops), R"(["x"])", "up to 64, 64 KiB in total"};
inline constexpr Field kTemperature{"temperature", number(0, 1), "1", "0 to 1"};
inline constexpr Field kTools{"tools", array(), R"([{"name":"f","input_schema":{"type":"object"}}])",
                              "custom tools (arguments of strict tools are held to their schemas); tools of other "
                              "types without a schema, which Anthropic's servers run, are left out with a warning"};
inline constexpr Field kToolChoice{"tool_choice", object(), R"({"type":"auto"})",
                                   "auto, any, tool, none; disable_parallel_tool_use"};
inline constexpr Field kThinking{"thinking", object(), R"({"type":"enabled","budget_tokens":4})",
                                 "enabled, disabled, adaptive; display"};
inline constexpr Field kOutputConfig{"output_config", object(),
                                     R"({"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}})"};
inline constexpr Field kOutputFormat{"output_format", object(), R"({"type":"json_schema","schema":{"type":"object"}})",
                                     "the first name of output_config.format"};
inline constexpr Field kMetadata{"metadata", object(), R"({"user_id":"u"})", "accepted; nothing depends on it",
                                 Support::kAccepted};
inline constexpr Field kContextManagement{
    "context_management", object(), R"({"edits":[]})",
    "clear_tool_uses_20250919 and clear_thinking_20251015 are applied, and the answer lists applied_edits; "
    "compact_20260112 is accepted below its trigger; other edits are refused"};

}  // namespace messages

extern const FieldTable kMessageFields;
extern const FieldTable kForeignMessageFields;

}  // namespace quire::fields
