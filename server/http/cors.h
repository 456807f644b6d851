// Cross-origin requests (the Fetch standard's CORS protocol): which other sites' pages may use the API from a browser.
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "server/http/request_head.h"
#include "server/http/response.h"
#include "server/http/server_options.h"

namespace quire {

// What lets the requesting page read the response; nothing where its origin is not allowed or there is none.
std::vector<HeaderField> cors_fields(const CorsOptions& options, const RequestHead& head);
// Whether the request comes from a page of a listed origin.
bool has_allowed_origin(const CorsOptions& options, const RequestHead& head);
// A browser's question before the request itself.
bool is_preflight(const RequestHead& head);
// `allow`: the methods that the path answers. 204 where the origin may, 403 where it may not.
Response preflight_response(const CorsOptions& options, const RequestHead& head, const std::string& allow);

}  // namespace quire
