#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr std::string_view kEmbeddingPaths[] = {"/v1/embeddings"};
constexpr FieldRow kEmbeddingRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", ""},
    {"input", one_of("string|array"), Support::kSupported, R"("x")",
     "a string, strings, token ids, lists of token ids"},
    {"encoding_format", words("float|base64"), Support::kSupported, R"("base64")", "float, base64"},
    {"dimensions", integer(1, kMostInt32), Support::kSupported, "2", "keeps the first ones, normalized again"},
    {"truncate_prompt_tokens", integer(-1, kMostInt32), Support::kSupported, "8",
     "keeps N tokens, -1: as many as fit; a decoder keeps the last ones, an encoder the first ones and the special "
     "tokens around them"},
    {"truncation_side", words("left|right"), Support::kSupported, R"("right")",
     "which end is cut: the beginning (left) or the end (right)"},
    {"truncate", one_of("boolean|string"), Support::kSupported, "true",
     "true as in text-embeddings-inference, START or END as in Cohere's API: cuts a text that is too long"},
    {"user", text(), Support::kAccepted, R"("u")", "accepted; nothing depends on it"},
    {"add_special_tokens", boolean(), Support::kSupported, "true", ""},
    {"parse_special", boolean(), Support::kSupported, "true", "as for completions"},
    {"normalize", boolean(), Support::kSupported, "false", "false: the vector is not normalized"},
    {"input_type", text(), Support::kSupported, R"("query")",
     "Cohere's: prepends the prompt for this type from the model's config_sentence_transformers.json; no effect if "
     "the model has none"},
    {"prompt_name", text(), Support::kSupported, "null",
     "the same by the prompt's name in that file; an unknown name is refused"},
    {"messages", array(), Support::kSupported, R"([{"role":"user","content":"x"}])",
     "instead of input: a chat, rendered with the model's template"},
};

constexpr std::string_view kRerankPaths[] = {"/v1/rerank"};
constexpr FieldRow kRerankRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", ""},
    {"query", one_of("string|object"), Support::kSupported, R"("x")", "a text, or an object with a text"},
    {"documents", one_of("string|array|object"), Support::kSupported, R"(["x",{"text":"y"}])",
     "texts, or objects with a text; at most 1024"},
    {"top_n", integer(1, kMostInt32), Support::kSupported, "1", "the number of results; absent: all"},
    {"return_documents", boolean(), Support::kSupported, "true", "true: the answer includes the texts"},
    {"max_tokens_per_doc", integer(1, kMostInt32), Support::kSupported, "8",
     "keeps the first N tokens of each document"},
    {"truncate_prompt_tokens", integer(-1, kMostInt32), Support::kSupported, "8",
     "limits the whole text; a pair's document is cut at its end"},
    {"truncation_side", words("left|right"), Support::kSupported, R"("right")", ""},
    {"truncate", one_of("boolean|string"), Support::kSupported, "true", "as for embeddings"},
    {"instruction", text(), Support::kSupported, R"("x")",
     "the task's instruction, if the model's prompt has a place for it"},
    {"use_activation", boolean(), Support::kSupported, "false", "false: a classifier's raw scores; also activation"},
    {"activation", boolean(), Support::kSupported, "false", ""},
    {"raw_scores", boolean(), Support::kSupported, "true", "text-embeddings-inference's inverse of use_activation"},
    {"texts", one_of("string|array|object"), Support::kSupported, R"(["x"])",
     "text-embeddings-inference's name of documents; the answer is then a list of index and score"},
    {"return_text", boolean(), Support::kSupported, "true", "with texts: the answer includes the texts"},
    {"user", text(), Support::kAccepted, R"("u")", "accepted; nothing depends on it"},
};

constexpr std::string_view kScorePaths[] = {"/v1/score"};
constexpr FieldRow kScoreRows[] = {
    {"text_1", one_of("string|array|object"), Support::kSupported, R"("x")", "a text or several; also queries"},
    {"text_2", one_of("string|array|object"), Support::kSupported, R"(["x","y"])", "a text or several; also documents"},
    {"queries", one_of("string|array|object"), Support::kSupported, R"(["x"])", ""},
    {"documents", one_of("string|array|object"), Support::kSupported, R"(["x"])", ""},
    {"max_tokens_per_doc", integer(1, kMostInt32), Support::kSupported, "8", ""},
    {"truncate_prompt_tokens", integer(-1, kMostInt32), Support::kSupported, "8", ""},
    {"use_activation", boolean(), Support::kSupported, "false", ""},
};

constexpr std::string_view kClassifyPaths[] = {"/v1/classify"};
constexpr FieldRow kClassifyRows[] = {
    {"input", one_of("string|array"), Support::kSupported, R"(["x"])", ""},
    {"use_activation", boolean(), Support::kSupported, "false",
     "false: the scores before softmax or sigmoid; also activation"},
};

constexpr std::string_view kPoolingPaths[] = {"/v1/pooling"};
constexpr FieldRow kPoolingRows[] = {
    {"input", one_of("string|array"), Support::kSupported, R"(["x"])", ""},
    {"task", words("token_embed|embed|classify|score"), Support::kSupported, R"("embed")",
     "token_embed (default): a vector per token; embed: one per text; classify, score: the classifier's scores"},
    {"encoding_format", words("float|base64"), Support::kSupported, R"("base64")", ""},
    {"normalize", boolean(), Support::kSupported, "false", ""},
};

}  // namespace

const FieldTable kEmbeddingFields{"Embeddings", "", kEmbeddingPaths, kEmbeddingRows};
const FieldTable kRerankFields{"Rerank", "", kRerankPaths, kRerankRows};
const FieldTable kScoreFields{"Scores of pairs", "", kScorePaths, kScoreRows};
const FieldTable kClassifyFields{"Classes", "", kClassifyPaths, kClassifyRows};
const FieldTable kPoolingFields{"Pooling", "", kPoolingPaths, kPoolingRows};

}  // namespace quire::reference
