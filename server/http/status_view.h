// The status page's figures as JSON: each model's pool, sequences, last steps and history. Any thread.
#pragma once

#include "server/http/report_reader.h"
#include "server/http/response.h"
#include "server/http/server_state.h"

namespace quire {

// Adds a point to the history of every model that runs. Once a second.
void sample_status(ServerState& state);
// GET /status. Each reader sees the ids of its own requests, and the place of others in the list.
Response status_view(ServerState& state, const ReportReader& reader);

}  // namespace quire
