// A request as the engine would get it, for clients and routers that want the tokens of a prompt and not an answer:
// vLLM's render endpoints. Any thread.
#pragma once

#include <memory>

#include "server/api/common/operation.h"

namespace quire {

// Answers with the prompts of the operation in place of running it: an object, or a list of them where `is_list`.
Result<std::unique_ptr<Operation>> rendered(Result<std::unique_ptr<Operation>> operation, const Call& call,
                                            bool is_list);

}  // namespace quire
