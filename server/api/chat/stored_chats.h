// Chat completions that were asked for with `store`: read again, with their messages, and deleted. Any thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

// GET /v1/chat/completions/{id} and /v1/chat/completions/{id}/messages
Result<std::unique_ptr<Operation>> get_stored_chat(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> delete_stored_chat(const ModelTable& models, const Call& call);

}  // namespace quire
