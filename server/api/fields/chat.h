// The fields of chats, and those that responses share with them. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace chat {

inline constexpr Field kMetadata{"metadata", object(), R"({"a":"b"})",
                                 "returned; up to 16 string values, 64 KiB in total"};
inline constexpr Field kParallelToolCalls{"parallel_tool_calls", boolean(), "false",
                                          "enforced where calls are constrained"};
inline constexpr Field kChatTemplateKwargs{"chat_template_kwargs", object(), R"({"a":1})"};
inline constexpr Field kDocuments{"documents", array(), "[]", "passed to the template"};
inline constexpr Field kEnableThinking{"enable_thinking", boolean(), "false", "passed to the template"};
inline constexpr Field kChatTemplate =
    refused("chat_template", R"("x")", "templates are the server's; an operator can set one");
inline constexpr Field kPromptCacheRetention{
    "prompt_cache_retention", words("in_memory|in-memory|24h"), R"("24h")",
    "24h: retained as with prompt_cache_key; in_memory: evicted as any other prompt, even with prompt_cache_key"};
inline constexpr Field kServiceTier{"service_tier", text(), R"("auto")", "a hint; there is one tier",
                                    Support::kAccepted};
inline constexpr Field kSafetyIdentifier{"safety_identifier", text(), R"("x")", "accepted; nothing depends on it",
                                         Support::kAccepted};
inline constexpr Field kPromptCacheKey{
    "prompt_cache_key", text(kMostHintBytes), R"("x")",
    "the conversation's prompts are evicted from the prefix cache after others, within kv_cache.retained_share; also "
    "with previous_response_id or conversation. Equal prefixes are shared under any key"};
inline constexpr Field kMessages{
    "messages", array(), R"([{"role":"user","content":"x"}])",
    "text parts; for models that see, image_url parts (data URLs; others as media.fetch and media.root allow; detail: "
    "auto, low, high, original; uuid: a name by which the image need not be sent again); file parts (file_data, "
    "file_id, file_url): text formats, and PDF where media.pdf.enabled is set. A model of text leaves images of "
    "earlier turns and of tools out, with a warning"};
inline constexpr Field kMaxCompletionTokens{"max_completion_tokens", integer(1, kMostInt32), "5"};
inline constexpr Field kLogprobs{"logprobs", boolean(), "true"};
inline constexpr Field kTopLogprobs{"top_logprobs", integer(0, kMostLogprobs), "2", "needs logprobs",
                                    Support::kConditional};
inline constexpr Field kBestOf{"best_of", integer(1, kMostChoices), "2", "chat completions return all of their choices",
                               Support::kConditional};
inline constexpr Field kIncludeReasoning{"include_reasoning", boolean(), "false"};
inline constexpr Field kTools{"tools", array(), R"([{"type":"function","function":{"name":"f"}}])",
                              "arguments of strict tools are held to their schemas"};
inline constexpr Field kToolChoice{"tool_choice", one_of("string|object"), R"("none")", "none, auto, required, named"};
inline constexpr Field kAddGenerationPrompt{"add_generation_prompt", boolean(), "true"};
inline constexpr Field kContinueFinalMessage{"continue_final_message", boolean(), "false"};
inline constexpr Field kReasoningEffort{"reasoning_effort", words("none|minimal|low|medium|high|xhigh|max"), R"("low")",
                                        "passed to the template"};
inline constexpr Field kThinkingTokenBudget{"thinking_token_budget", integer(-1, kMostInt32), "9",
                                            "vLLM's name of thinking_budget"};
inline constexpr Field kThinkingBudget{
    "thinking_budget", integer(-1, kMostInt32), "9",
    "most tokens of reasoning, then its end is forced; -1: no limit; no effect without reasoning"};
inline constexpr Field kFunctionCall{"function_call", one_of("string|object"), R"("none")",
                                     "deprecated form of tool_choice"};
inline constexpr Field kFunctions{"functions", array(), R"([{"name":"f"}])",
                                  "deprecated form of tools; the answer has function_call"};
inline constexpr Field kStore{"store", boolean(), "true",
                              "false by default; kept in memory, within the limits of server.responses"};

}  // namespace chat

extern const FieldTable kConversationFields;
extern const FieldTable kChatFields;

}  // namespace quire::fields
