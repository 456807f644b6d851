#include "server/api/fields/pooling.h"

#include "server/api/fields/generation.h"

namespace quire::fields {

namespace {

constexpr Field kPooledModel{"model", text(), R"("fake")"};
constexpr Field kPooledInput{"input", one_of("string|array"), R"(["x"])"};

constexpr Field kEmbeddingRows[] = {
    kPooledModel,
    pooling::kInput,
    pooling::kEncodingFormat,
    pooling::kDimensions,
    pooling::kTruncatePromptTokens,
    pooling::kTruncationSide,
    pooling::kTruncate,
    generation::kUser,
    {"add_special_tokens", boolean(), "true"},
    {"parse_special", boolean(), "false", "as for completions"},
    pooling::kNormalize,
    pooling::kInputType,
    pooling::kPromptName,
    pooling::kMessages,
};

constexpr Field kRerankRows[] = {
    kPooledModel,
    pooling::kQuery,
    pooling::kDocuments,
    pooling::kTopN,
    pooling::kReturnDocuments,
    pooling::kMaxTokensPerDoc,
    {"truncate_prompt_tokens", integer(-1, kMostInt32), "8",
     "limits the whole text; a pair's document is cut at its end"},
    {"truncation_side", words("left|right"), R"("right")"},
    {"truncate", one_of("boolean|string"), "true", "as for embeddings"},
    pooling::kInstruction,
    pooling::kUseActivation,
    pooling::kActivation,
    pooling::kRawScores,
    pooling::kTexts,
    pooling::kReturnText,
    generation::kUser,
};

constexpr Field kScoreRows[] = {
    pooling::kText1,
    pooling::kText2,
    pooling::kQueries,
    {"documents", one_of("string|array|object"), R"(["x"])"},
    {"max_tokens_per_doc", integer(1, kMostInt32), "8"},
    {"truncate_prompt_tokens", integer(-1, kMostInt32), "8"},
    {"use_activation", boolean(), "false"},
};

constexpr Field kClassifyRows[] = {
    kPooledInput,
    {"use_activation", boolean(), "false", "false: the scores before softmax or sigmoid; also activation"},
    pooling::kActivation,
};

constexpr Field kPoolingRows[] = {
    kPooledInput,
    pooling::kTask,
    {"encoding_format", words("float|base64"), R"("base64")"},
    {"normalize", boolean(), "false"},
};

}  // namespace

const FieldTable kEmbeddingFields{"Embeddings", "", "/v1/embeddings", kEmbeddingRows};
const FieldTable kRerankFields{"Rerank", "", "/v1/rerank", kRerankRows};
const FieldTable kScoreFields{"Scores of pairs", "", "/v1/score", kScoreRows};
const FieldTable kClassifyFields{"Classes", "", "/v1/classify", kClassifyRows};
const FieldTable kPoolingFields{"Pooling", "", "/v1/pooling", kPoolingRows};

}  // namespace quire::fields
