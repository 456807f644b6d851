// /v1/chat/completions: a request's body to the operation that answers it, and the stored chat completions. Any thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_chat(ModelCall& asked, const Call& call);
// POST /v1/chat/completions/render: its prompt's tokens.
Result<std::unique_ptr<Operation>> render_chat_request(ModelCall& asked, const Call& call);

// GET /v1/chat/completions/{id} and /v1/chat/completions/{id}/messages
Result<std::unique_ptr<Operation>> get_stored_chat(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> delete_stored_chat(const ModelTable& models, const Call& call);

}  // namespace quire
