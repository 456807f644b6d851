// POST /v1/chat/completions: the operation that answers in OpenAI's chat.completion shapes, whole or streamed. Any
// thread.
#pragma once

#include <memory>

#include "server/api/model_table.h"
#include "server/api/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_chat(const ModelTable& models, const Call& call);

}  // namespace quire
