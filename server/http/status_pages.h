// The pages about the server itself: health, metrics, version. Any thread.
#pragma once

#include "server/http/response.h"
#include "server/http/server_state.h"

namespace quire {

Response livez(ServerState& state);     // 200 unless only a restart can help
Response readyz(ServerState& state);    // 200 where new work is welcome
Response startupz(ServerState& state);  // 200 once the models are loaded
Response metrics_page(ServerState& state, bool sees_keys);
Response version_page(ServerState& state);

}  // namespace quire
