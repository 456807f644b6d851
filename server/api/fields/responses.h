// The fields of OpenAI's Responses API and its conversations. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace responses {

inline constexpr Field kInput{
    "input", one_of("string|array"), R"("x")",
    "a string, or items: messages, reasoning, item_reference, compaction, function_call, custom_tool_call, "
    "local_shell_call and their outputs (texts or arrays of texts); for models that see, input_image parts (image_url "
    "or file_id); input_file parts (file_data, file_id, file_url) of text formats, and PDF where media.pdf.enabled is "
    "set; items of other types are left out with a warning; a compaction_trigger is answered by one compaction item; "
    "an empty list is an empty user message"};
inline constexpr Field kInstructions{"instructions", text(), R"("x")",
                                     "the system message; not carried over to the next response"};
inline constexpr Field kPreviousResponseId{"previous_response_id", text(), R"("resp_0")",
                                           "supported; the example is not stored", Support::kConditional};
inline constexpr Field kMaxOutputTokens{"max_output_tokens", integer(1, kMostInt32), "5",
                                        "an upper bound, as is the rest of the context"};
inline constexpr Field kMaxToolCalls{"max_tool_calls", integer(1, kMostInt32), "5",
                                     "limits calls of the server's own tools; there are none"};
inline constexpr Field kStore{"store", boolean(), "false",
                              "true by default; kept in memory, within the limits of server.responses"};
inline constexpr Field kTools{"tools", array(), R"([{"type":"function","name":"f"}])",
                              "functions (arguments of strict ones are held to their schemas; default: not strict), "
                              "namespaces of functions, custom tools (a grammar is shown, not enforced), local_shell; "
                              "web_search, image_generation and OpenAI's other tools are left out with a warning"};
inline constexpr Field kToolChoice{"tool_choice", one_of("string|object"), R"("none")",
                                   "none, auto, required, a function, allowed_tools"};
inline constexpr Field kText{"text", object(), R"({"format":{"type":"json_object"}})",
                             "format: text, json_object, json_schema; verbosity: a hint"};
inline constexpr Field kReasoning{"reasoning", object(), R"({"effort":"low","summary":"auto"})",
                                  "summary: auto, concise and detailed return the whole reasoning"};
inline constexpr Field kInclude{"include", texts(64),
                                R"(["message.output_text.logprobs","reasoning.encrypted_content"])",
                                "OpenAI's other values are accepted; no item has such parts"};
inline constexpr Field kTruncation{"truncation", words("auto|disabled"), R"("disabled")",
                                   "auto leaves out the oldest turns of a conversation that is too long"};
inline constexpr Field kTopLogprobs{"top_logprobs", integer(0, kMostLogprobs), "2", "0 to 20"};
inline constexpr Field kType{"type", words("response.create"), R"("response.create")", "required over a WebSocket",
                             Support::kAccepted};
inline constexpr Field kGenerate{"generate", boolean(), "false", "only a WebSocket keeps what was not generated",
                                 Support::kConditional};
inline constexpr Field kBackground{"background", boolean(), "true",
                                   "answers at once with status queued; the response is generated even if its client "
                                   "disconnects, and is read by its id; needs store"};
inline constexpr Field kConversation{"conversation", one_of("string|object"), R"("conv_0")",
                                     "an id, or an object with an id: the response's input and output are added to the "
                                     "conversation; not with previous_response_id. The example does not exist",
                                     Support::kConditional};
inline constexpr Field kContextManagement{
    "context_management", array(), R"([{"type":"compaction","compact_threshold":1}])",
    "type compaction: accepted for inputs of at most compact_threshold tokens; a longer input, as in this example, is "
    "a 400 for this field. POST /v1/responses/compact shortens a conversation",
    Support::kConditional};
inline constexpr Field kItems{"items", array(), R"([{"role":"user","content":"x"}])", "as a response's input"};
inline constexpr Field kMetadata{"metadata", object(), R"({"a":"b"})", "up to 16 string values, 64 KiB in total"};

}  // namespace responses

extern const FieldTable kResponseFields;
extern const FieldTable kCompactFields;
extern const FieldTable kNewConversationFields;
extern const FieldTable kConversationChangeFields;
extern const FieldTable kConversationItemsFields;

}  // namespace quire::fields
