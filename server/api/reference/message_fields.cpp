#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr std::string_view kMessagePaths[] = {"/v1/messages"};
constexpr FieldRow kMessageRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", "by name or alias"},
    {"max_tokens", integer(1, kMostInt32), Support::kSupported, "5", "required"},
    {"messages", array(), Support::kSupported, R"([{"role":"user","content":[{"type":"text","text":"x"}]}])",
     "text, thinking, tool_use and tool_result blocks, documents (text, blocks, base64, url, file; PDF where "
     "media.pdf.enabled is set), search results; for models that see, images (base64, url, file), also in documents "
     "and "
     "tool results; other media are refused, blocks of Anthropic's own tools are "
     "left out with a warning"},
    {"system", one_of("string|array"), Support::kSupported, R"([{"type":"text","text":"x"}])",
     "a string or text blocks; a text that begins with `x-anthropic-billing-header:` differs in each request and is "
     "left out"},
    {"stop_sequences", texts(64), Support::kSupported, R"(["x"])", "up to 64, 64 KiB in total"},
    {"stream", boolean(), Support::kSupported, "true", ""},
    {"temperature", number(0, 1), Support::kSupported, "1", "0 to 1"},
    {"top_p", number(0, 1), Support::kSupported, "0.9", ""},
    {"top_k", integer(-1, kMostInt32), Support::kSupported, "5", ""},
    {"tools", array(), Support::kSupported, R"([{"name":"f","input_schema":{"type":"object"}}])",
     "custom tools (arguments of strict tools are held to their schemas); tools of other types without a schema, which "
     "Anthropic's servers run, are left out with a warning"},
    {"tool_choice", object(), Support::kSupported, R"({"type":"auto"})",
     "auto, any, tool, none; disable_parallel_tool_use"},
    {"thinking", object(), Support::kSupported, R"({"type":"enabled","budget_tokens":4})",
     "enabled, disabled, adaptive; display"},
    {"output_config", object(), Support::kSupported,
     R"({"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}})", ""},
    {"output_format", object(), Support::kSupported, R"({"type":"json_schema","schema":{"type":"object"}})",
     "the first name of output_config.format"},
    kPictureSettings,
    {"metadata", object(), Support::kAccepted, R"({"user_id":"u"})", "accepted; nothing depends on it"},
    {"service_tier", text(), Support::kAccepted, R"("auto")", "a hint; there is one tier"},
    {"cache_control", object(), Support::kAccepted, R"({"type":"ephemeral"})",
     "accepted anywhere; equal prefixes are always shared"},
    {"container", only("[]"), Support::kRefused, R"("x")", "the server runs no code"},
    {"mcp_servers", only("[]"), Support::kRefused, R"([{"type":"url","name":"x","url":"x"}])",
     "the server calls no other servers"},
    {"context_management", object(), Support::kSupported, R"({"edits":[]})",
     "clear_tool_uses_20250919 and clear_thinking_20251015 are applied, and the answer lists applied_edits; "
     "compact_20260112 is accepted below its trigger; other edits are refused"},
    {"inference_geo", only("[]"), Support::kRefused, R"("us")", ""},
    {"diagnostics", only("[]"), Support::kRefused, "{}", "requests are not kept"},
    {"speed", only("[\"standard\"]"), Support::kRefused, R"("fast")", "standard is accepted"},
    {"stop", only("[]"), Support::kRefused, R"(["x"])", "use stop_sequences"},
    {"n", only("[1]"), Support::kRefused, "2", "OpenAI's other fields of choices and logprobs are refused too"},
};

}  // namespace

const FieldTable kMessageFields{"Anthropic's messages", "", kMessagePaths, kMessageRows};

}  // namespace quire::reference
