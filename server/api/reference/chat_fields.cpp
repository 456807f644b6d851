#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr std::string_view kConversationPaths[] = {"/v1/chat/completions", "/v1/responses"};
constexpr FieldRow kConversationRows[] = {
    {"metadata", object(), Support::kSupported, R"({"a":"b"})", "returned; up to 16 string values, 64 KiB in total"},
    {"parallel_tool_calls", boolean(), Support::kSupported, "false", "enforced where calls are constrained"},
    {"chat_template_kwargs", object(), Support::kSupported, R"({"a":1})", ""},
    {"documents", array(), Support::kSupported, "[]", "passed to the template"},
    {"enable_thinking", boolean(), Support::kSupported, "false", "passed to the template"},
    {"chat_template", only("[]"), Support::kRefused, R"("x")", "the operator sets templates"},
    {"prompt_cache_retention", words("in_memory|24h"), Support::kSupported, R"("24h")",
     "24h: retained as with prompt_cache_key; in_memory: evicted as any other prompt, even with prompt_cache_key"},
    {"prompt_cache_options", object(), Support::kAccepted, "{}", "prompts stay cached while there is room"},
    {"service_tier", text(), Support::kAccepted, R"("auto")", "a hint; there is one tier"},
    {"safety_identifier", text(), Support::kAccepted, R"("x")", "accepted; nothing depends on it"},
    {"prompt_cache_key", text(), Support::kSupported, R"("x")",
     "the conversation's prompts are evicted from the prefix cache after others, within kv_cache.retained_share; also "
     "with previous_response_id or conversation. Equal prefixes are shared under any key"},
};

constexpr std::string_view kChatPaths[] = {"/v1/chat/completions"};
constexpr FieldRow kChatRows[] = {
    {"messages", array(), Support::kSupported, R"([{"role":"user","content":"x"}])",
     "text parts; for models that see, image_url parts (data URLs; others as media.fetch and media.root allow; detail: "
     "auto, low, high, original; uuid: a name by which the image need not be sent again); file parts "
     "(file_data, file_id, file_url): text formats, and PDF where media.pdf.enabled is set. A model of text leaves "
     "images of earlier turns and of tools out, with a warning"},
    kPictureSettings,
    {"max_completion_tokens", integer(1, kMostInt32), Support::kSupported, "5", ""},
    {"logprobs", boolean(), Support::kSupported, "true", ""},
    {"top_logprobs", integer(0, 20), Support::kConditional, "2", "needs logprobs"},
    {"best_of", only("[1]"), Support::kRefused, "2", "chats return all choices"},
    {"include_reasoning", boolean(), Support::kSupported, "false", ""},
    {"tools", array(), Support::kSupported, R"([{"type":"function","function":{"name":"f"}}])",
     "arguments of strict tools are held to their schemas"},
    {"tool_choice", one_of("string|object"), Support::kSupported, R"("none")", "none, auto, required, named"},
    {"add_generation_prompt", boolean(), Support::kSupported, "true", ""},
    {"continue_final_message", boolean(), Support::kSupported, "false", ""},
    {"reasoning_effort", words("none|minimal|low|medium|high|xhigh|max"), Support::kSupported, R"("low")",
     "passed to the template"},
    {"thinking_token_budget", integer(-1, kMostInt32), Support::kSupported, "9", "vLLM's name of thinking_budget"},
    {"thinking_budget", integer(-1, kMostInt32), Support::kSupported, "9",
     "most tokens of reasoning, then its end is forced; -1: no limit; no effect without reasoning"},
    {"audio", only("[]"), Support::kRefused, R"({"voice":"v"})", "text only"},
    {"modalities", only("[[\"text\"]]"), Support::kRefused, R"(["audio"])", "text only"},
    {"prediction", only("[]"), Support::kRefused, R"({"type":"content"})", ""},
    {"web_search_options", only("[]"), Support::kRefused, "{}", ""},
    {"moderation", only("[]"), Support::kRefused, "{}", ""},
    {"function_call", one_of("string|object"), Support::kSupported, R"("none")", "deprecated form of tool_choice"},
    {"functions", array(), Support::kSupported, R"([{"name":"f"}])",
     "deprecated form of tools; the answer has function_call"},
    {"store", boolean(), Support::kSupported, "true",
     "false by default; kept in memory, within the limits of server.responses"},
    {"verbosity", text(), Support::kAccepted, R"("low")", "a hint; nothing depends on it"},
    {"echo", only("[false]"), Support::kRefused, "true", "a chat's prompt is not shown"},
};

constexpr std::string_view kResponsePaths[] = {"/v1/responses"};
constexpr FieldRow kResponseRows[] = {
    {"request_id", text(), Support::kAccepted, R"("r")", "a response has an id of its own"},
    {"input", one_of("string|array"), Support::kSupported, R"("x")",
     "a string, or items: messages, reasoning, item_reference, compaction, function_call, custom_tool_call, "
     "local_shell_call and their outputs (texts or arrays of texts); for models that see, input_image parts (image_url "
     "or file_id); input_file parts (file_data, file_id, file_url) of text formats, and PDF where media.pdf.enabled is "
     "set; items of other types are left out with a "
     "warning; a compaction_trigger is answered by one compaction item; an empty list is an empty user message"},
    {"instructions", text(), Support::kSupported, R"("x")",
     "the system message; not carried over to the next response"},
    {"previous_response_id", text(), Support::kConditional, R"("resp_0")", "supported; the example is not stored"},
    {"max_output_tokens", integer(1, kMostInt32), Support::kSupported, "5",
     "an upper bound, as is the rest of the context"},
    {"kv_transfer_params", only("[]"), Support::kRefused, "{}", "completions and chat completions take it"},
    kPictureSettings,
    {"max_tool_calls", integer(1, kMostInt32), Support::kSupported, "5",
     "limits calls of the server's own tools; there are none"},
    {"store", boolean(), Support::kSupported, "false",
     "true by default; kept in memory, within the limits of server.responses"},
    {"tools", array(), Support::kSupported, R"([{"type":"function","name":"f"}])",
     "functions (arguments of strict ones are held to their schemas; default: not strict), namespaces of functions, "
     "custom "
     "tools (a grammar is shown, not enforced), local_shell; web_search, image_generation and OpenAI's other tools "
     "are left out with a warning"},
    {"tool_choice", one_of("string|object"), Support::kSupported, R"("none")",
     "none, auto, required, a function, allowed_tools"},
    {"text", object(), Support::kSupported, R"({"format":{"type":"json_object"}})",
     "format: text, json_object, json_schema; verbosity: a hint"},
    {"reasoning", object(), Support::kSupported, R"({"effort":"low","summary":"auto"})",
     "summary: auto, concise and detailed return the whole reasoning"},
    {"include", texts(64), Support::kSupported, R"(["message.output_text.logprobs","reasoning.encrypted_content"])",
     "OpenAI's other values are accepted; no item has such parts"},
    {"truncation", words("auto|disabled"), Support::kSupported, R"("disabled")",
     "auto leaves out the oldest turns of a conversation that is too long"},
    {"top_logprobs", integer(0, 20), Support::kSupported, "2", "0 to 20"},
    {"type", words("response.create"), Support::kAccepted, R"("response.create")", "required over a WebSocket"},
    {"generate", only("[true]"), Support::kRefused, "false",
     "over a WebSocket: keeps the input for the next message and generates nothing"},
    {"stream_id", only("[]"), Support::kRefused, R"("s")", "a WebSocket answers one message after another"},
    {"return_progress", only("[false]"), Support::kRefused, "true", "only OpenAI's events are sent"},
    {"background", boolean(), Support::kSupported, "true",
     "answers at once with status queued; the response is generated even if its client disconnects, and is read by "
     "its id; needs store"},
    {"conversation", one_of("string|object"), Support::kConditional, R"("conv_0")",
     "an id, or an object with an id: the response's input and output are added to the conversation; not with "
     "previous_response_id. The example does not exist"},
    {"prompt", only("[]"), Support::kRefused, R"({"id":"p"})", "the server keeps no prompt templates"},
    {"context_management", array(), Support::kConditional, R"([{"type":"compaction","compact_threshold":1}])",
     "type compaction: accepted for inputs of at most compact_threshold tokens; a longer input, as in this example, "
     "is a 400 for this field. POST /v1/responses/compact shortens a conversation"},
    {"moderation", only("[]"), Support::kRefused, R"({"model":"m"})", ""},
    {"n", only("[1]"), Support::kRefused, "2", "a response has one choice"},
    {"best_of", only("[1]"), Support::kRefused, "2", "a response has one choice"},
    {"echo", only("[false]"), Support::kRefused, "true", ""},
    {"logprobs", only("[]"), Support::kRefused, "true", "use include and top_logprobs"},
    {"prompt_logprobs", only("[]"), Support::kRefused, "1", ""},
    {"return_token_ids", only("[false]"), Support::kRefused, "true", ""},
    {"return_tokens_as_token_ids", only("[false]"), Support::kRefused, "true", ""},
    {"max_tokens", only("[]"), Support::kRefused, "5", "use max_output_tokens"},
    {"max_completion_tokens", only("[]"), Support::kRefused, "5", "use max_output_tokens"},
    {"messages", only("[]"), Support::kRefused, "[]", "use input"},
    {"response_format", only("[]"), Support::kRefused, R"({"type":"text"})", "use text.format"},
    {"reasoning_effort", only("[]"), Support::kRefused, R"("low")", "use reasoning.effort"},
    {"functions", only("[]"), Support::kRefused, "[]", "use tools"},
    {"function_call", only("[]"), Support::kRefused, R"("none")", "use tool_choice"},
};

constexpr std::string_view kCompactPaths[] = {"/v1/responses/compact"};
constexpr FieldRow kCompactRows[] = {
    {"stream", only("[false]"), Support::kRefused, "true", "the answer is sent when it is complete"},
    {"background", only("[false]"), Support::kRefused, "true", "the answer is sent when it is complete"},
};
constexpr std::string_view kNewConversationPaths[] = {"/v1/conversations"};
constexpr std::string_view kConversationChangePaths[] = {"/v1/conversations/{id}"};
constexpr std::string_view kConversationItemsPaths[] = {"/v1/conversations/{id}/items"};
constexpr FieldRow kMetadataRow = {"metadata", object(), Support::kSupported, R"({"a":"b"})",
                                   "up to 16 string values, 64 KiB in total"};
constexpr FieldRow kItemsRow = {"items", array(), Support::kSupported, R"([{"role":"user","content":"x"}])",
                                "as a response's input"};
constexpr FieldRow kNewConversationRows[] = {kItemsRow, kMetadataRow};
constexpr FieldRow kConversationChangeRows[] = {kMetadataRow};
constexpr FieldRow kConversationItemsRows[] = {kItemsRow};

}  // namespace

const FieldTable kCompactFields{"Compaction of a conversation", "", kCompactPaths, kCompactRows};
const FieldTable kNewConversationFields{"Conversations", "", kNewConversationPaths, kNewConversationRows};
const FieldTable kConversationChangeFields{"Metadata of a conversation", "", kConversationChangePaths,
                                           kConversationChangeRows};
const FieldTable kConversationItemsFields{"Items of a conversation", "", kConversationItemsPaths,
                                          kConversationItemsRows};
const FieldTable kConversationFields{"Fields of chats and responses", "", kConversationPaths, kConversationRows};
const FieldTable kChatFields{"Chat completions", "", kChatPaths, kChatRows};
const FieldTable kResponseFields{"Responses", "", kResponsePaths, kResponseRows};

}  // namespace quire::reference
