// Handler of GET /openapi.json: the API's reference as an OpenAPI 3.1 document. Any thread.
#pragma once

#include "server/admin/report_reader.h"
#include "server/api/common/json.h"
#include "server/state/server_state.h"
#include "server/wire/response.h"

namespace quire {

// The document of this build's routes.
Json served_openapi();

Response openapi_response(ServerState& state, const ReportReader& reader);

}  // namespace quire
