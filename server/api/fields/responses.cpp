#include "server/api/fields/responses.h"

#include "server/api/fields/generation.h"

namespace quire::fields {

namespace {

constexpr Field kResponseRows[] = {
    {"request_id", text(), R"("r")", "a response has an id of its own", Support::kAccepted},
    responses::kInput,
    responses::kInstructions,
    responses::kPreviousResponseId,
    responses::kMaxOutputTokens,
    generation::kNoTransfer,
    kPictureSettings,
    responses::kMaxToolCalls,
    responses::kStore,
    responses::kTools,
    responses::kToolChoice,
    responses::kText,
    responses::kReasoning,
    responses::kInclude,
    responses::kTruncation,
    responses::kTopLogprobs,
    responses::kType,
    responses::kGenerate,
    refused("stream_id", R"("s")", "a connection answers one message after another"),
    refused("return_progress", "true", "a response's events are OpenAI's own", "[false]"),
    responses::kBackground,
    responses::kConversation,
    refused("prompt", R"({"id":"p"})", "the server keeps no prompt templates"),
    responses::kContextManagement,
    refused("moderation", R"({"model":"m"})", "the server has no moderation model"),
    refused("n", "2", "a response is one", "[1]"),
    refused("best_of", "2", "a response is one", "[1]"),
    refused("echo", "true", "a response has no room for its prompt", "[false]"),
    refused("logprobs", "true", "in the Responses API it is 'include': [\"message.output_text.logprobs\"]"),
    refused("prompt_logprobs", "1", "a response has no room for them"),
    refused("return_token_ids", "true", "a response has no room for them", "[false]"),
    refused("return_tokens_as_token_ids", "true", "a response has no room for them", "[false]"),
    refused("max_tokens", "5", "in the Responses API it is 'max_output_tokens'"),
    refused("max_completion_tokens", "5", "in the Responses API it is 'max_output_tokens'"),
    refused("messages", "[]", "in the Responses API it is 'input'"),
    refused("response_format", R"({"type":"text"})", "in the Responses API it is 'text.format'"),
    refused("reasoning_effort", R"("low")", "in the Responses API it is 'reasoning.effort'"),
    refused("functions", "[]", "use 'tools'"),
    refused("function_call", R"("none")", "use 'tool_choice'"),
};

constexpr Field kCompactRows[] = {
    refused("stream", "true", "a compaction is answered when it is done", "[false]"),
    refused("background", "true", "a compaction is answered when it is done", "[false]"),
};

constexpr Field kNewConversationRows[] = {
    responses::kItems,
    responses::kMetadata,
};

constexpr Field kConversationChangeRows[] = {
    responses::kMetadata,
};

constexpr Field kConversationItemsRows[] = {
    responses::kItems,
};

}  // namespace

const FieldTable kResponseFields{"Responses", "", "/v1/responses", kResponseRows};
const FieldTable kCompactFields{"Compaction of a conversation", "", "/v1/responses/compact", kCompactRows};
const FieldTable kNewConversationFields{"Conversations", "", "/v1/conversations", kNewConversationRows};
const FieldTable kConversationChangeFields{"Metadata of a conversation", "", "/v1/conversations/{id}",
                                           kConversationChangeRows};
const FieldTable kConversationItemsFields{"Items of a conversation", "", "/v1/conversations/{id}/items",
                                          kConversationItemsRows};

}  // namespace quire::fields
