// The tables by name, each in its API's file; field_tables() and operations() list them. Immutable.
#pragma once

#include "server/api/reference/field_table.h"

namespace quire::reference {

// The row that all APIs with pictures have.
inline constexpr FieldRow kPictureSettings{
    "mm_processor_kwargs", object(), Support::kSupported, R"({"max_pixels":100000})",
    "min_pixels and max_pixels of each image, also as size.shortest_edge and size.longest_edge; size.height and "
    "size.width where the model reads images of that size only; other members are refused"};

extern const FieldTable kGenerationFields;
extern const FieldTable kChoiceFields;
extern const FieldTable kConversationFields;
extern const FieldTable kCompletionFields;
extern const FieldTable kChatFields;
extern const FieldTable kResponseFields;
extern const FieldTable kCompactFields;
extern const FieldTable kNewConversationFields;
extern const FieldTable kConversationChangeFields;
extern const FieldTable kConversationItemsFields;
extern const FieldTable kMessageFields;
extern const FieldTable kLlamaFields;
extern const FieldTable kInfillFields;
extern const FieldTable kTokenGenerationFields;
extern const FieldTable kTokenizeFields;
extern const FieldTable kDetokenizeFields;
extern const FieldTable kEmbeddingFields;
extern const FieldTable kRerankFields;
extern const FieldTable kScoreFields;
extern const FieldTable kClassifyFields;
extern const FieldTable kPoolingFields;
extern const FieldTable kOllamaChatFields;
extern const FieldTable kOllamaPromptFields;
extern const FieldTable kOllamaOptions;
extern const FieldTable kOllamaEmbedFields;
extern const FieldTable kOllamaEmbeddingFields;
extern const FieldTable kBatchFields;
extern const FieldTable kLoadAdapterFields;
extern const FieldTable kUnloadAdapterFields;
extern const FieldTable kPullFields;
extern const FieldTable kRemoveFields;
extern const FieldTable kLoadFields;
extern const FieldTable kReplaceFields;
extern const FieldTable kModelNameFields;
extern const FieldTable kSlotFields;

extern const std::span<const OperationRow> kServerOperations;  // about the server itself

}  // namespace quire::reference
