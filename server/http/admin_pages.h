// The pages under /admin: what an admin tells the server to do. Run on a text thread; any thread.
#pragma once

#include "server/api/common/operation.h"
#include "server/http/server_state.h"

namespace quire {

// POST /admin/reload: reads the configuration again.
Result<AdminTask> admin_reload(ServerState& state, const Call& call);
// POST /admin/trace?seconds=N: what the engines of all models that are ready do in the next N seconds, for Perfetto.
Result<AdminTask> admin_trace(ServerState& state, const Call& call);

}  // namespace quire
