#include "server/api/fields/messages.h"

#include "server/api/fields/chat.h"
#include "server/api/fields/generation.h"

namespace quire::fields {

namespace {

constexpr Field kMessageRows[] = {
    {"model", text(), R"("fake")", "by name or alias"},
    messages::kMaxTokens,
    messages::kMessages,
    messages::kSystem,
    messages::kStopSequences,
    generation::kStream,
    messages::kTemperature,
    row_of(kFilterRows, "top_p"),
    row_of(kFilterRows, "top_k"),
    messages::kTools,
    messages::kToolChoice,
    messages::kThinking,
    messages::kOutputConfig,
    messages::kOutputFormat,
    kPictureSettings,
    messages::kMetadata,
    chat::kServiceTier,
    {"cache_control", object(), R"({"type":"ephemeral"})", "accepted anywhere; equal prefixes are always shared",
     Support::kAccepted},
    refused("container", R"("x")", "the server runs no code"),
    refused("mcp_servers", R"([{"type":"url","name":"x","url":"x"}])", "the server calls no other servers", "[[]]"),
    messages::kContextManagement,
    refused("inference_geo", R"("us")", "the server is where it is"),
    refused("diagnostics", "{}", "requests are not kept"),
    refused("speed", R"("fast")", "there is one speed", "[\"standard\"]"),
};

constexpr Field kForeignMessageRows[] = {
    refused("n", "2", "the Messages API has no such field"),
    refused("best_of", "2", "the Messages API has no such field"),
    refused("logprobs", "true", "the Messages API has no such field"),
    refused("top_logprobs", "2", "the Messages API has no such field"),
    refused("prompt_logprobs", "1", "the Messages API has no such field"),
    refused("return_token_ids", "true", "the Messages API has no such field"),
    refused("return_tokens_as_token_ids", "true", "the Messages API has no such field"),
    refused("stream_options", R"({"include_usage":true})", "the Messages API has no such field"),
    refused("return_progress", "true", "the Messages API has no such field"),
    refused("echo", "true", "the Messages API has no such field"),
    refused("stop", R"(["x"])", "use 'stop_sequences'"),
    generation::kNoTransfer,
};

}  // namespace

const FieldTable kMessageFields{"Anthropic's messages", "", "/v1/messages", kMessageRows};
const FieldTable kForeignMessageFields{"OpenAI's fields that messages refuse", "", "/v1/messages", kForeignMessageRows};

}  // namespace quire::fields
