// Anthropic's POST /v1/messages and /v1/messages/count_tokens. Pure functions; any thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_messages(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> render_message(ModelCall& asked, const Call& call);  // its prompt's tokens
Result<std::unique_ptr<Operation>> count_message_tokens(ModelCall& asked, const Call& call);

}  // namespace quire
