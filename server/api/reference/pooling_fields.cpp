#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr std::string_view kEmbeddingPaths[] = {"/v1/embeddings"};
constexpr FieldRow kEmbeddingRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", ""},
    {"input", one_of("string|array"), Support::kSupported, R"("x")",
     "a string, strings, token ids, lists of token ids"},
    {"encoding_format", words("float|base64"), Support::kSupported, R"("base64")", "float, base64"},
    {"dimensions", integer(1, kMostInt32), Support::kSupported, "2", "the first ones, of length 1 again"},
    {"truncate_prompt_tokens", integer(-1, kMostInt32), Support::kSupported, "8",
     "keeps so many tokens, -1: as many as fit; a decoder's last ones, an encoder's first ones and the special tokens "
     "around them"},
    {"truncation_side", words("left|right"), Support::kSupported, R"("right")",
     "what is taken away: the beginning (left) or the end"},
    {"truncate", one_of("boolean|string"), Support::kSupported, "true",
     "text-embeddings-inference's true, Cohere's START and END: what does not fit is taken away"},
    {"user", text(), Support::kAccepted, R"("u")", "accepted; nothing depends on it"},
    {"add_special_tokens", boolean(), Support::kSupported, "true", ""},
    {"parse_special", boolean(), Support::kSupported, "true", "as for completions"},
    {"normalize", boolean(), Support::kSupported, "false", "false: the vector as the model computed it"},
    {"input_type", text(), Support::kSupported, R"("query")",
     "Cohere's: what stands before such texts in the model's file (config_sentence_transformers.json) is put before "
     "them; a model without such prompts reads all alike"},
    {"prompt_name", text(), Support::kSupported, "null",
     "the same, by the name in the file; a name that is not there is refused"},
    {"messages", array(), Support::kSupported, R"([{"role":"user","content":"x"}])",
     "in place of input: the chat as the template writes it"},
};

constexpr std::string_view kRerankPaths[] = {"/v1/rerank"};
constexpr FieldRow kRerankRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", ""},
    {"query", one_of("string|object"), Support::kSupported, R"("x")", "a text, or an object with a text"},
    {"documents", one_of("string|array|object"), Support::kSupported, R"(["x",{"text":"y"}])",
     "texts, or objects with a text; at most 1024"},
    {"top_n", integer(1, kMostInt32), Support::kSupported, "1", "so many results; all where absent"},
    {"return_documents", boolean(), Support::kSupported, "true", "the texts in the answer"},
    {"max_tokens_per_doc", integer(1, kMostInt32), Support::kSupported, "8",
     "keeps so many of each document's first tokens"},
    {"truncate_prompt_tokens", integer(-1, kMostInt32), Support::kSupported, "8",
     "of the whole text; a pair loses the end of its document"},
    {"truncation_side", words("left|right"), Support::kSupported, R"("right")", ""},
    {"truncate", one_of("boolean|string"), Support::kSupported, "true", "as for embeddings"},
    {"instruction", text(), Support::kSupported, R"("x")",
     "what makes a document fit, where the model's prompt has a place for it"},
    {"use_activation", boolean(), Support::kSupported, "false", "false: a classifier's own scores; also activation"},
    {"activation", boolean(), Support::kSupported, "false", ""},
    {"raw_scores", boolean(), Support::kSupported, "true", "text-embeddings-inference's name of the same"},
    {"texts", one_of("string|array|object"), Support::kSupported, R"(["x"])",
     "text-embeddings-inference's documents: the answer is then its list of index and score"},
    {"return_text", boolean(), Support::kSupported, "true", "with texts: the texts in the answer"},
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
     "false: the scores before the softmax; also activation"},
};

constexpr std::string_view kPoolingPaths[] = {"/v1/pooling"};
constexpr FieldRow kPoolingRows[] = {
    {"input", one_of("string|array"), Support::kSupported, R"(["x"])", ""},
    {"task", words("token_embed|embed|classify|score"), Support::kSupported, R"("embed")",
     "token_embed (default): a vector per token; embed: one; classify, score: the classifier's scores"},
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
