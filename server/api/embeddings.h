// POST /v1/embeddings: each input's vector, pooled as the model's file says, as numbers or base64. Any thread.
#pragma once

#include <memory>

#include "server/api/model_table.h"
#include "server/api/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_embeddings(ModelCall& asked, const Call& call);

}  // namespace quire
