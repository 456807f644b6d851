// Handler of DELETE /v1/streams/{id}. It runs on the admin thread; stateless, so any thread.
#pragma once

#include "server/api/common/operation.h"
#include "server/state/server_state.h"

namespace quire {

// Ends a stream of the call's key that is kept for its client: one that nothing reads is not computed further.
Result<AdminTask> end_stream(ServerState& state, const Call& call);

}  // namespace quire
