// Handlers that download and delete models: /admin/models and Ollama's paths, which need an admin key too. They run on
// the admin thread; any thread. server.pull sets their limits; the hub, its cache and the token come from the
// environment.
#pragma once

#include "server/api/common/operation.h"
#include "server/state/server_state.h"

namespace quire {

// POST /admin/models/pull: {"model": OWNER/NAME[@REVISION][:QUANTISATION]}. "stream": server-sent events; "wait":
// false: 202 at once. "load": true adds it to the served models, as "name"; its first request loads it.
Result<AdminTask> admin_pull_model(ServerState& state, const Call& call);
// POST /admin/models/remove: deletes {"model": ...} from the cache.
Result<AdminTask> admin_remove_model(ServerState& state, const Call& call);
// GET /admin/models/cache: lists the cached models and the downloads.
Result<AdminTask> admin_list_cache(ServerState& state, const Call& call);

// POST /api/pull: succeeds at once for a served model; any other is downloaded and served, which takes an admin key.
Result<AdminTask> ollama_pull(ServerState& state, const Call& call);
// DELETE /api/delete: unloads the model and deletes its files from the cache.
Result<AdminTask> ollama_delete(ServerState& state, const Call& call);

}  // namespace quire
