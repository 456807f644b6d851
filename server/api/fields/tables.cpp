#include "server/api/fields/admin.h"
#include "server/api/fields/batches.h"
#include "server/api/fields/chat.h"
#include "server/api/fields/completions.h"
#include "server/api/fields/generation.h"
#include "server/api/fields/llama.h"
#include "server/api/fields/messages.h"
#include "server/api/fields/ollama.h"
#include "server/api/fields/pooling.h"
#include "server/api/fields/responses.h"
#include "server/api/fields/tokenizing.h"

namespace quire::fields {

namespace {

constexpr const FieldTable* kAllTables[] = {
    &kGenerationFields,
    &kNativeFields,
    &kChoiceFields,
    &kConversationFields,
    &kCompletionFields,
    &kLlamaFields,
    &kInfillFields,
    &kChatFields,
    &kResponseFields,
    &kCompactFields,
    &kNewConversationFields,
    &kConversationChangeFields,
    &kConversationItemsFields,
    &kEmbeddingFields,
    &kRerankFields,
    &kScoreFields,
    &kClassifyFields,
    &kPoolingFields,
    &kTokenGenerationFields,
    &kTokenizeFields,
    &kDetokenizeFields,
    &kMessageFields,
    &kForeignMessageFields,
    &kOllamaChatFields,
    &kOllamaPromptFields,
    &kOllamaOptions,
    &kOllamaEmbedFields,
    &kOllamaEmbeddingFields,
    &kBatchFields,
    &kLoadFields,
    &kReplaceFields,
    &kLoadAdapterFields,
    &kUnloadAdapterFields,
    &kPullFields,
    &kRemoveFields,
    &kModelNameFields,
    &kSlotFields,
};

}  // namespace

std::span<const FieldTable* const> field_tables() {
  return kAllTables;
}

}  // namespace quire::fields
