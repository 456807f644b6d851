#include "server/api/fields/batches.h"

#include "server/api/fields/responses.h"

namespace quire::fields {

namespace {

constexpr Field kBatchRows[] = {
    batches::kInputFileId, batches::kEndpoint,           batches::kCompletionWindow,
    responses::kMetadata,  batches::kOutputExpiresAfter,
};

}  // namespace

const FieldTable kBatchFields{"Batches", "", "/v1/batches", kBatchRows};

}  // namespace quire::fields
