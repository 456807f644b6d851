// What Beast's parser lets pass in a request's head though another reader of the same bytes may take it otherwise:
// folded lines, repeated hosts and lengths, lists of lengths, transfer codings that do not frame the body. Pure
// functions; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/http/request_head.h"

namespace quire {

// `head`: from the request line to the empty line, every line ended by CRLF. Nothing: Beast's parser may read it.
std::optional<HttpRefusal> check_raw_head(std::string_view head);

// Without blanks at either end.
std::string_view trimmed(std::string_view text);

}  // namespace quire
