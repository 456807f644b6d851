// connect_models: connects the server's sessions and admin handlers to LiveModels. Before the first session.
#pragma once

#include "server/models/live_models.h"
#include "server/state/server_state.h"

namespace quire {

// `models` outlives the server's threads.
void connect_models(ServerState& state, LiveModels& models);

}  // namespace quire
