// POST /v1/completions: the request's prompts, and the operation that answers in OpenAI's text_completion shape. Any
// thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_completion(ModelCall& asked, const Call& call);
// POST /v1/completions/render: the tokens of its prompts.
Result<std::unique_ptr<Operation>> render_completion(ModelCall& asked, const Call& call);

}  // namespace quire
