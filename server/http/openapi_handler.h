// Handler of GET /openapi.json: the API's reference as an OpenAPI 3.1 document. Any thread.
#pragma once

#include "server/api/common/json.h"
#include "server/http/report_reader.h"
#include "server/http/response.h"
#include "server/http/server_state.h"

namespace quire {

// The document of this build's routes.
Json served_openapi();

Response openapi_response(ServerState& state, const ReportReader& reader);

}  // namespace quire
