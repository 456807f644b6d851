// Cross-origin requests (the Fetch standard's CORS protocol): which other sites' pages may use the API from a browser.
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "server/state/server_options.h"
#include "server/wire/request_head.h"
#include "server/wire/response.h"

namespace quire {

// Header fields that let the requesting page read the response; empty if its origin is absent or not allowed.
std::vector<HeaderField> cors_fields(const CorsOptions& options, const RequestHead& head);
// Returns whether the request comes from a page of a listed origin.
bool has_allowed_origin(const CorsOptions& options, const RequestHead& head);
// A browser's preflight request.
bool is_preflight(const RequestHead& head);
// `allow`: the methods that the path answers. 204 for an allowed origin, else 403.
Response preflight_response(const CorsOptions& options, const RequestHead& head, const std::string& allow);

}  // namespace quire
