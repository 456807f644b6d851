// Handlers of /admin/reload, /admin/trace and /admin/cache. They run on the admin thread; stateless, so any thread.
#pragma once

#include "server/api/common/operation.h"
#include "server/state/server_state.h"

namespace quire {

// POST /admin/reload: reads the configuration again.
Result<AdminTask> admin_reload(ServerState& state, const Call& call);
// POST /admin/trace?seconds=N: records the engines of all ready models for N seconds, in Perfetto's format.
Result<AdminTask> admin_trace(ServerState& state, const Call& call);
// GET /admin/cache: the number of full blocks in each ready model's pool and the exclusive or of their hashes, for
// subscribers of kv_cache.events.
Result<AdminTask> admin_cache(ServerState& state, const Call& call);

}  // namespace quire
