// Handlers of /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's answers: a line of text once the adapter
// is usable. They run on the admin thread; any thread. Unknown fields are refused.
#pragma once

#include "server/api/common/operation.h"
#include "server/state/server_state.h"

namespace quire {

Result<AdminTask> admin_load_adapter(ServerState& state,
                                     const Call& call);  // lora_name, lora_path, load_inplace, model
Result<AdminTask> admin_unload_adapter(ServerState& state, const Call& call);  // lora_name

}  // namespace quire
