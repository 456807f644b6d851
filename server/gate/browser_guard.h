// Web pages in a visitor's browser: checks that stop a page from using the server (Host against DNS rebinding, Origin
// and Content-Type against cross-site requests), and CORS (the Fetch standard), which allows listed pages the API. Pure
// functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/wire/request_head.h"
#include "server/wire/response.h"

namespace quire {

struct CorsOptions;

// Returns whether only this network can point the Host name at the server: an address, a name without a dot, this
// machine's name, a name in a domain that is never delegated (".local", ".internal", ...), or one of `allowed` ("*":
// every name).
bool is_trusted_host(std::string_view host, const std::vector<std::string>& allowed);

// Returns whether the browser's headers say that another site's page sent the request.
bool is_cross_site(const RequestHead& head);

// Refuses a request to an /admin path if a web page could have sent it.
std::optional<Response> cross_site_refusal(const RequestHead& head);

// Returns whether the request has marks of a browser: Origin, Referer, Cookie, Sec-Fetch-*, or a browser's User-Agent.
// Every request that a page can send to another site has one of them.
bool is_from_browser(const RequestHead& head);

// The type that curl and others send by default: application/x-www-form-urlencoded.
bool is_form_type(std::string_view content_type);

// application/json, text/json and application/...+json, with or without parameters.
bool is_json_type(std::string_view content_type);

// Header fields that let the requesting page read the response; empty if its origin is absent or not allowed.
std::vector<HeaderField> cors_fields(const CorsOptions& options, const RequestHead& head);
// Returns whether the request comes from a page of a listed origin.
bool has_allowed_origin(const CorsOptions& options, const RequestHead& head);
// A browser's preflight request.
bool is_preflight(const RequestHead& head);
// `allow`: the methods that the path answers. 204 for an allowed origin, else 403.
Response preflight_response(const CorsOptions& options, const RequestHead& head, const std::string& allow);

}  // namespace quire
