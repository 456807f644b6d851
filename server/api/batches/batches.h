// /v1/batches: the requests about batches, and the JSON of batches. Batch thread only.
#pragma once

#include "server/api/batches/files.h"

namespace quire {

Result<StoredAnswer> create_batch(BatchStore& store, const Call& call);
Result<StoredAnswer> list_batches(BatchStore& store, const Call& call);
Result<StoredAnswer> get_batch(BatchStore& store, const Call& call);
// POST /v1/batches/{id}/cancel.
Result<StoredAnswer> cancel_batch(BatchStore& store, const Call& call);

}  // namespace quire
