#include "server/api/fields/ollama.h"

#include "server/api/fields/generation.h"

namespace quire::fields {

namespace {

constexpr Field kOllamaModel{"model", text(), R"("fake:latest")"};
constexpr Field kOllamaShift{"shift", boolean(), "true", "a context is never shifted; the answer ends where it is full",
                             Support::kAccepted};

constexpr Field kOllamaChatRows[] = {
    kOllamaModel,
    ollama::kMessages,
    {"tools", array(), R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])",
     "each call is sent whole"},
    ollama::kFormat,
    ollama::kOptions,
    ollama::kStream,
    ollama::kThink,
    ollama::kKeepAlive,
    ollama::kLogprobs,
    ollama::kTopLogprobs,
    ollama::kTruncate,
    kOllamaShift,
};

constexpr Field kOllamaPromptRows[] = {
    kOllamaModel,
    ollama::kPrompt,
    ollama::kSystem,
    ollama::kRaw,
    ollama::kSuffix,
    ollama::kContext,
    refused("template", R"("x")", "templates are the server's; an operator can set one", "[\"\"]"),
    ollama::kImages,
    ollama::kFormat,
    ollama::kThink,
    ollama::kOptions,
    ollama::kStream,
    ollama::kKeepAlive,
    ollama::kLogprobs,
    ollama::kTopLogprobs,
    ollama::kTruncate,
    kOllamaShift,
};

constexpr Field kOllamaOptionRows[] = {
    ollama::kNumPredict,
    ollama::kNumCtx,
    {"num_keep", integer(-1, kMostInt32), "4", "accepted: a context is never shifted", Support::kAccepted},
    row_of(kFilterRows, "temperature"),
    row_of(kFilterRows, "top_k"),
    row_of(kFilterRows, "top_p"),
    row_of(kFilterRows, "min_p"),
    row_of(kFilterRows, "typical_p"),
    row_of(kPenaltyRows, "repeat_last_n"),
    row_of(kPenaltyRows, "repeat_penalty"),
    row_of(kPenaltyRows, "presence_penalty"),
    row_of(kPenaltyRows, "frequency_penalty"),
    generation::kSeed,
    generation::kStop,
    row_of(kFilterRows, "mirostat"),
    row_of(kFilterRows, "mirostat_tau"),
    row_of(kFilterRows, "mirostat_eta"),
    refused("tfs_z", "0.5", "tail-free sampling is not served", "[1]"),
    refused("penalize_newline", "false", "line ends are penalised as other tokens are", "[true]"),
    refused("n", "2", "Ollama's API has no such option"),
    refused("best_of", "2", "Ollama's API has no such option"),
    refused("prompt_logprobs", "1", "Ollama's API has no such option"),
    refused("stream", "true", "Ollama's API has no such option"),
    refused("return_token_ids", "true", "Ollama's API has no such option"),
    refused("return_progress", "true", "Ollama's API has no such option"),
    generation::kNoTransfer,
};

constexpr Field kOllamaEmbedRows[] = {
    kOllamaModel,
    ollama::kInput,
    ollama::kTruncateText,
    ollama::kDimensions,
    {"options", object(), R"({"num_ctx":512})", "only num_ctx"},
    ollama::kKeepAlive,
};

constexpr Field kOllamaEmbeddingRows[] = {
    ollama::kEmbeddedPrompt,
};

}  // namespace

const FieldTable kOllamaChatFields{"Ollama's chats", "", "/api/chat", kOllamaChatRows};
const FieldTable kOllamaPromptFields{"Ollama's prompts", "", "/api/generate", kOllamaPromptRows};
const FieldTable kOllamaOptions{"Ollama's options", "options", "/api/generate", kOllamaOptionRows};
const FieldTable kOllamaEmbedFields{"Ollama's embeddings", "", "/api/embed", kOllamaEmbedRows};
const FieldTable kOllamaEmbeddingFields{"Ollama's embedding of one text", "", "/api/embeddings", kOllamaEmbeddingRows};

}  // namespace quire::fields
