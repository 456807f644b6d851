// What keeps a web page that a user of this network has opened from acting on the server with that user's reach: the
// checks of Host (DNS rebinding), Origin and Content-Type (requests across sites). Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/request_head.h"
#include "server/http/response.h"

namespace quire {

// Whether an outsider cannot have made this Host lead here: an address, a name without a dot, this machine's name, a
// name under a domain that is never delegated (".local", ".internal", ...), or one of `allowed` ("*": every name).
bool is_trusted_host(std::string_view host, const std::vector<std::string>& allowed);

// Whether a browser says that a page of another site sends this.
bool is_cross_site(const RequestHead& head);

// Why a web page may have made this request of an /admin path; nothing where none can have.
std::optional<Response> cross_site_refusal(const RequestHead& head);

// Whether the request bears marks of a browser: Origin, Referer, Cookie, Sec-Fetch-*, or a browser's User-Agent. Every
// request that a page can send to another site has one of them.
bool is_from_browser(const RequestHead& head);

// What a program such as curl calls a body without a given type: application/x-www-form-urlencoded.
bool is_form_type(std::string_view content_type);

// application/json, text/json and application/...+json, with or without parameters.
bool is_json_type(std::string_view content_type);

}  // namespace quire
