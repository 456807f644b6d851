#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr std::string_view kOllamaChatPaths[] = {"/api/chat"};
constexpr FieldRow kOllamaChatRows[] = {
    {"model", text(), Support::kSupported, R"("fake:latest")", ""},
    {"messages", array(), Support::kSupported, R"([{"role":"user","content":"x"}])",
     "content, thinking, tool_calls with objects for arguments, tool_name; images for models that see"},
    {"tools", array(), Support::kSupported,
     R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])", "each call is sent whole"},
    {"format", one_of("string|object"), Support::kSupported, R"({"type":"object"})", "json, or a schema"},
    {"options", object(), Support::kSupported, R"({"temperature":0})", "see below"},
    {"stream", boolean(), Support::kSupported, "false", "true by default"},
    {"think", one_of("boolean|string"), Support::kSupported, "true",
     "or low, medium, high; absent: the template's default"},
    {"keep_alive", one_of("string|number"), Support::kSupported, R"("5m")",
     "accepted; the operator decides how long models stay loaded. 0 without a prompt (an unload) is refused"},
    {"logprobs", boolean(), Support::kSupported, "true", ""},
    {"top_logprobs", integer(0, 20), Support::kConditional, "2", "needs logprobs"},
    {"truncate", one_of("boolean|string"), Support::kSupported, "false",
     "true (default): leaves out the oldest turns of a chat that is too long"},
    {"shift", boolean(), Support::kAccepted, "true", "a context is never shifted; the answer ends where it is full"},
};

constexpr std::string_view kOllamaPromptPaths[] = {"/api/generate"};
constexpr FieldRow kOllamaPromptRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", ""},
    {"prompt", text(), Support::kSupported, R"("x")", "a user message in the template"},
    {"system", one_of("string|array"), Support::kSupported, R"("x")", ""},
    {"raw", boolean(), Support::kSupported, "true", "true: the prompt without a template, control tokens included"},
    {"suffix", text(), Support::kConditional, R"("x")", "for models that fill in the middle"},
    {"context", token_ids(), Support::kSupported, "[1,2]",
     "the context of an earlier answer; its tokens go before the prompt"},
    {"template", only("[]"), Support::kRefused, R"("x")", "the operator sets templates"},
    {"images", array(), Support::kConditional, R"(["aGk="])", "for models that see: in base64, before the prompt"},
    {"format", one_of("string|object"), Support::kSupported, R"("json")", "as for chats"},
    {"think", one_of("boolean|string"), Support::kSupported, "false", ""},
    {"options", object(), Support::kSupported, R"({"num_predict":5})", ""},
    {"stream", boolean(), Support::kSupported, "false", ""},
    {"keep_alive", one_of("string|number"), Support::kSupported, "300", ""},
    {"logprobs", boolean(), Support::kSupported, "true", ""},
};

constexpr std::string_view kOllamaOptionPaths[] = {"/api/generate"};
constexpr FieldRow kOllamaOptionRows[] = {
    {"num_predict", integer(-2, kMostInt32), Support::kSupported, "5", "-1, -2: up to the context's end"},
    {"num_ctx", integer(1, kMostInt32), Support::kSupported, "512",
     "limits the request's context; the model's own limit still holds"},
    {"num_keep", integer(-1, kMostInt32), Support::kAccepted, "4", "accepted: a context is never shifted"},
    {"temperature", number(0, 100), Support::kSupported, "0", ""},
    {"top_k", integer(-1, kMostInt32), Support::kSupported, "5", ""},
    {"top_p", number(0, 1), Support::kSupported, "0.5", ""},
    {"min_p", number(0, 1), Support::kSupported, "0.1", ""},
    {"typical_p", number(0, 1), Support::kSupported, "0.9", ""},
    {"repeat_last_n", integer(-1, kMostInt32), Support::kSupported, "32", ""},
    {"repeat_penalty", number(1e-6, 100), Support::kSupported, "1.2", ""},
    {"presence_penalty", number(-2, 2), Support::kSupported, "1", ""},
    {"frequency_penalty", number(-2, 2), Support::kSupported, "1", ""},
    {"seed", integer(), Support::kSupported, "7", ""},
    {"stop", text_or_texts(64), Support::kSupported, R"(["z"])", "64 KiB in total"},
    {"mirostat", integer(0, 2), Support::kSupported, "2", ""},
    {"mirostat_tau", number(0, 100), Support::kSupported, "3", ""},
    {"mirostat_eta", number(0, 1), Support::kSupported, "0.3", ""},
    {"tfs_z", only("[1]"), Support::kRefused, "0.5", ""},
    {"penalize_newline", only("[true]"), Support::kRefused, "false", ""},
    {"n", only("[1]"), Support::kRefused, "2", ""},
};

constexpr std::string_view kOllamaEmbedPaths[] = {"/api/embed"};
constexpr FieldRow kOllamaEmbedRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", ""},
    {"input", one_of("string|array"), Support::kSupported, R"(["x","y"])", "a text or several; vectors are normalized"},
    {"truncate", one_of("boolean|string"), Support::kSupported, "true",
     "true (default): cuts the end of a text that is too long"},
    {"dimensions", integer(1, kMostInt32), Support::kSupported, "2", ""},
    {"options", object(), Support::kSupported, R"({"num_ctx":512})", "only num_ctx"},
    {"keep_alive", one_of("string|number"), Support::kSupported, R"("5m")", ""},
};

constexpr std::string_view kOllamaEmbeddingPaths[] = {"/api/embeddings"};
constexpr FieldRow kOllamaEmbeddingRows[] = {
    {"prompt", text(), Support::kSupported, R"("x")", "a text; its vector is not normalized"},
};

}  // namespace

const FieldTable kOllamaChatFields{"Ollama's chats", "", kOllamaChatPaths, kOllamaChatRows};
const FieldTable kOllamaPromptFields{"Ollama's prompts", "", kOllamaPromptPaths, kOllamaPromptRows};
const FieldTable kOllamaOptions{"Ollama's options", "options", kOllamaOptionPaths, kOllamaOptionRows};
const FieldTable kOllamaEmbedFields{"Ollama's embeddings", "", kOllamaEmbedPaths, kOllamaEmbedRows};
const FieldTable kOllamaEmbeddingFields{"Ollama's embedding of one text", "", kOllamaEmbeddingPaths,
                                        kOllamaEmbeddingRows};

}  // namespace quire::reference
