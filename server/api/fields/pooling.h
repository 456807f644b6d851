// The fields of embeddings, rerank, scores and classes. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace pooling {

inline constexpr Field kInput{"input", one_of("string|array"), R"("x")",
                              "a string, strings, token ids, lists of token ids"};
inline constexpr Field kEncodingFormat{"encoding_format", words("float|base64"), R"("base64")", "float, base64"};
inline constexpr Field kDimensions{"dimensions", integer(1, kMostInt32), "2", "keeps the first ones, normalized again"};
inline constexpr Field kTruncatePromptTokens{"truncate_prompt_tokens", integer(-1, kMostInt32), "8",
                                             "keeps N tokens, -1: as many as fit; a decoder keeps the last ones, an "
                                             "encoder the first ones and the special tokens around them"};
inline constexpr Field kTruncationSide{"truncation_side", words("left|right"), R"("right")",
                                       "which end is cut: the beginning (left) or the end (right)"};
inline constexpr Field kTruncate{
    "truncate", one_of("boolean|string"), "true",
    "true as in text-embeddings-inference, START or END as in Cohere's API: cuts a text that is too long"};
inline constexpr Field kNormalize{"normalize", boolean(), "false", "false: the vector is not normalized"};
inline constexpr Field kInputType{"input_type", text(), R"("query")",
                                  "Cohere's: prepends the prompt for this type from the model's "
                                  "config_sentence_transformers.json; no effect if the model has none"};
inline constexpr Field kPromptName{"prompt_name", text(), "null",
                                   "the same by the prompt's name in that file; an unknown name is refused"};
inline constexpr Field kMessages{"messages", array(), R"([{"role":"user","content":"x"}])",
                                 "instead of input, not beside it: a chat, rendered with the model's template"};
inline constexpr Field kQuery{"query", one_of("string|object"), R"("x")", "a text, or an object with a text"};
inline constexpr Field kDocuments{"documents", one_of("string|array|object"), R"(["x",{"text":"y"}])",
                                  "texts, or objects with a text; at most 1024"};
inline constexpr Field kTopN{"top_n", integer(1, kMostInt32), "1", "the number of results; absent: all"};
inline constexpr Field kReturnDocuments{"return_documents", boolean(), "true", "true: the answer includes the texts"};
inline constexpr Field kMaxTokensPerDoc{"max_tokens_per_doc", integer(1, kMostInt32), "8",
                                        "keeps the first N tokens of each document"};
inline constexpr Field kInstruction{"instruction", text(), R"("x")",
                                    "the task's instruction, if the model's prompt has a place for it"};
inline constexpr Field kUseActivation{"use_activation", boolean(), "false",
                                      "false: a classifier's raw scores; also activation"};
inline constexpr Field kActivation{"activation", boolean(), "false"};
inline constexpr Field kRawScores{"raw_scores", boolean(), "true",
                                  "text-embeddings-inference's inverse of use_activation"};
inline constexpr Field kTexts{
    "texts", one_of("string|array|object"), R"(["x"])",
    "text-embeddings-inference's name of documents; the answer is then a list of index and score"};
inline constexpr Field kReturnText{"return_text", boolean(), "true", "with texts: the answer includes the texts"};
inline constexpr Field kText1{"text_1", one_of("string|array|object"), R"("x")", "a text or several; also queries"};
inline constexpr Field kText2{"text_2", one_of("string|array|object"), R"(["x","y"])",
                              "a text or several; also documents"};
inline constexpr Field kQueries{"queries", one_of("string|array|object"), R"(["x"])"};
inline constexpr Field kTask{
    "task", words("token_embed|embed|classify|score"), R"("embed")",
    "token_embed (default): a vector per token; embed: one per text; classify, score: the classifier's scores"};

}  // namespace pooling

extern const FieldTable kEmbeddingFields;
extern const FieldTable kRerankFields;
extern const FieldTable kScoreFields;
extern const FieldTable kClassifyFields;
extern const FieldTable kPoolingFields;

}  // namespace quire::fields
