// vLLM's POST /inference/v1/generate: token ids in, token ids out. Pure functions; any thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_token_generation(ModelCall& asked, const Call& call);

}  // namespace quire
