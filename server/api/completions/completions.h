// POST /v1/completions, and vLLM's POST /inference/v1/generate, which takes and answers token ids: a body to the
// operation that answers it. Any thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_completion(ModelCall& asked, const Call& call);
// POST /v1/completions/render: the tokens of its prompts.
Result<std::unique_ptr<Operation>> render_completion(ModelCall& asked, const Call& call);

Result<std::unique_ptr<Operation>> parse_token_generation(ModelCall& asked, const Call& call);

}  // namespace quire
