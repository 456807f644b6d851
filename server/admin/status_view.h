// The status page's figures as JSON: each model's pool, sequences, last steps and history. Any thread.
#pragma once

#include "server/admin/report_reader.h"
#include "server/state/server_state.h"
#include "server/wire/response.h"

namespace quire {

// Adds a point to the history of every model that runs. Once a second.
void sample_status(ServerState& state);
// GET /status. Each reader sees the ids of its own requests, and the place of others in the list.
Response status_view(ServerState& state, const ReportReader& reader);

}  // namespace quire
