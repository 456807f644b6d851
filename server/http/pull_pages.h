// The pages by which models are downloaded and deleted: an admin's, and Ollama's, which need an admin too. Run on the
// admin thread; any thread. server.pull bounds them; the hub, its cache and the token are the environment's.
#pragma once

#include "server/api/common/operation.h"
#include "server/http/server_state.h"

namespace quire {

// POST /admin/models/pull: {"model": OWNER/NAME[@REVISION][:QUANTISATION]}. "stream": server-sent events; "wait":
// false: 202 at once. "load": true takes it into service, as "name"; its first request loads it.
Result<AdminTask> admin_pull_model(ServerState& state, const Call& call);
// POST /admin/models/remove: deletes {"model": ...} from the cache.
Result<AdminTask> admin_remove_model(ServerState& state, const Call& call);
// GET /admin/models/cache: what is in the cache, and what is being downloaded.
Result<AdminTask> admin_list_cache(ServerState& state, const Call& call);

// POST /api/pull: what is served is there; else, for an admin, downloaded and taken into service.
Result<AdminTask> ollama_pull(ServerState& state, const Call& call);
// DELETE /api/delete: out of service and out of the cache.
Result<AdminTask> ollama_delete(ServerState& state, const Call& call);

}  // namespace quire
