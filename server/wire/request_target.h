// The target of a request line: host, path and query (RFC 9112, 3.2; RFC 3986). Pure functions; any thread.
#pragma once

#include <string_view>

#include "server/wire/request_head.h"

namespace quire {

// Sets the path and the query from head.target: a path, an absolute URI, or * if the method allows it. Returns false
// for other forms, for non-printable or non-ASCII text, or if the decoded path is not UTF-8.
bool split_target(RequestHead& head);

// uri-host [ ":" port ], which Host holds; the host may be empty.
bool is_host_and_port(std::string_view text);

}  // namespace quire
