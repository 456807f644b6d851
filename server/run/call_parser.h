// parse_call: reads a call's body and makes its operation, or names what the call must wait for first. On a text
// thread.
#pragma once

#include <memory>
#include <variant>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"
#include "server/router.h"

namespace quire {

// The call must be read again once its pictures are there.
struct WantedMedia {};
// A parsed call of the API: its operation, or the condition for it: a sleeping model to wake, pictures to read.
using ParsedCall = std::variant<std::unique_ptr<Operation>, SleepingModel, WantedMedia>;
// Reads the call's body. `route` is one of the API's. The error's code is WorkLimit::kCode if the call's limit was
// reached.
Result<ParsedCall> parse_call(const Route& route, const ModelTable& models, const Call& call);

}  // namespace quire
