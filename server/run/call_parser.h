// parse_call: parses a call's body into its operation, or says that the call must wait first. On a text thread.
#pragma once

#include <memory>
#include <variant>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"
#include "server/router.h"

namespace quire {

// The call is parsed again once its pictures are loaded.
struct WantedMedia {};
// The operation, or what must come first: a sleeping model to wake, or pictures to load.
using ParsedCall = std::variant<std::unique_ptr<Operation>, SleepingModel, WantedMedia>;
// Parses the call's body. `route` must belong to the API. The error's code is WorkLimit::kCode if the call's limit was
// reached.
Result<ParsedCall> parse_call(const Route& route, const ModelTable& models, const Call& call);

}  // namespace quire
