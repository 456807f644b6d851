// OpenAI's Responses API: POST /v1/responses, and the operations on stored responses. Each runs on a text thread; any
// thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_response(ModelCall& asked, const Call& call);
// POST /v1/responses/compact: the model's summary of a conversation, as an item to continue from.
Result<std::unique_ptr<Operation>> compact_response(ModelCall& asked, const Call& call);
// POST /v1/responses/input_tokens
Result<std::unique_ptr<Operation>> count_response_tokens(ModelCall& asked, const Call& call);
// GET /v1/responses/{id} and /v1/responses/{id}/input_items
Result<std::unique_ptr<Operation>> get_response(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> delete_response(const ModelTable& models, const Call& call);
// POST /v1/responses/{id}/cancel: of a background response.
Result<std::unique_ptr<Operation>> cancel_response(const ModelTable& models, const Call& call);

}  // namespace quire
