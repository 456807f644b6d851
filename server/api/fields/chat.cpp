#include "server/api/fields/chat.h"

#include "server/api/fields/generation.h"

namespace quire::fields {

namespace {

constexpr Field kConversationRows[] = {
    chat::kMetadata,
    chat::kParallelToolCalls,
    chat::kChatTemplateKwargs,
    chat::kDocuments,
    chat::kEnableThinking,
    chat::kChatTemplate,
    chat::kPromptCacheRetention,
    {"prompt_cache_options", object(), "{}", "prompts stay cached while there is room", Support::kAccepted},
    chat::kServiceTier,
    chat::kSafetyIdentifier,
    chat::kPromptCacheKey,
};

constexpr Field kChatRows[] = {
    chat::kMessages,
    kPictureSettings,
    chat::kMaxCompletionTokens,
    chat::kLogprobs,
    chat::kTopLogprobs,
    chat::kBestOf,
    chat::kIncludeReasoning,
    chat::kTools,
    chat::kToolChoice,
    chat::kAddGenerationPrompt,
    chat::kContinueFinalMessage,
    chat::kReasoningEffort,
    chat::kThinkingTokenBudget,
    chat::kThinkingBudget,
    refused("audio", R"({"voice":"v"})", "this model writes text only"),
    refused("modalities", R"(["audio"])", "this model writes text only", "[[\"text\"]]"),
    refused("prediction", R"({"type":"content"})", "predicted outputs are not served"),
    refused("web_search_options", "{}", "the server has no web search"),
    refused("moderation", "{}", "the server has no moderation model"),
    chat::kFunctionCall,
    chat::kFunctions,
    chat::kStore,
    {"verbosity", text(), R"("low")", "a hint; nothing depends on it", Support::kAccepted},
    refused("echo", "true", "a chat's prompt is not shown", "[false]"),
};

}  // namespace

const FieldTable kConversationFields{"Fields of chats and responses", "", "/v1/chat/completions, /v1/responses",
                                     kConversationRows};
const FieldTable kChatFields{"Chat completions", "", "/v1/chat/completions", kChatRows};

}  // namespace quire::fields
