// The fields of batches. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace batches {

inline constexpr Field kInputFileId{"input_file_id", text(), R"("file-1")", "required; a file of purpose batch"};
inline constexpr Field kEndpoint{"endpoint", words("/v1/chat/completions|/v1/completions|/v1/embeddings|/v1/responses"),
                                 R"("/v1/chat/completions")", "required"};
inline constexpr Field kCompletionWindow{
    "completion_window", text(), R"("24h")",
    "required; 24h, or another number of minutes (m), hours (h) or days (d) up to 30d"};
inline constexpr Field kOutputExpiresAfter{"output_expires_after", object(),
                                           R"({"anchor":"created_at","seconds":3600})",
                                           "when the batch's output files expire"};

}  // namespace batches

extern const FieldTable kBatchFields;

}  // namespace quire::fields
