// The status page's figures as JSON: each model's pool, sequences, last steps and history. Any thread.
#pragma once

#include "server/http/response.h"
#include "server/http/server_state.h"

namespace quire {

// Adds a point to the history of every model that runs. Once a second.
void sample_status(ServerState& state);
// GET /status. Without sees_keys no API key is named.
Response status_view(ServerState& state, bool sees_keys);

}  // namespace quire
