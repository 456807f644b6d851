// The syntax of HTTP/1.1 requests (RFC 9112, RFC 9110, RFC 3986): kinds of characters, request targets, and heads that
// Beast's parser accepts and other parsers may read differently (request smuggling): folded lines, repeated hosts and
// lengths, lists of lengths, transfer codings that do not frame the body. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/ascii.h"
#include "server/wire/request_head.h"

namespace quire {

// Characters of a token (RFC 9110, 5.6.2).
bool is_token_char(char c);
// Characters allowed in a field's value: tab, space, visible ASCII, and bytes above 0x7f.
bool is_field_value_char(char c);

// `head`: from the request line to the empty line, every line ended by CRLF. Returns the refusal, or nullopt if Beast's
// parser may read it.
std::optional<HttpRefusal> check_raw_head(std::string_view head);

// Trims blanks at both ends.
std::string_view trimmed(std::string_view text);

// Sets the path and the query from head.target: a path, an absolute URI, or * if the method allows it. Returns false
// for other forms, for non-printable or non-ASCII text, or if the decoded path is not UTF-8.
bool split_target(RequestHead& head);

// uri-host [ ":" port ], which Host holds; the host may be empty.
bool is_host_and_port(std::string_view text);

}  // namespace quire
