// Checks a raw request head for forms that Beast's parser accepts and other parsers may read differently (request
// smuggling): folded lines, repeated hosts and lengths, lists of lengths, transfer codings that do not frame the body.
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/wire/request_head.h"

namespace quire {

// `head`: from the request line to the empty line, every line ended by CRLF. Returns the refusal, or nullopt if Beast's
// parser may read it.
std::optional<HttpRefusal> check_raw_head(std::string_view head);

// Trims blanks at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace quire
