// Handlers of the health checks, the metrics and the version. Any thread.
#pragma once

#include "server/admin/report_reader.h"
#include "server/state/server_state.h"
#include "server/wire/response.h"

namespace quire {

Response livez(ServerState& state);     // 503 where only a restart helps
Response readyz(ServerState& state);    // 200 while new requests are accepted
Response startupz(ServerState& state);  // 200 once the models are loaded
Response metrics_response(ServerState& state, const ReportReader& reader);
Response version_response(ServerState& state);

}  // namespace quire
