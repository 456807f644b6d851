// The escapes of Python string literals. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire::jinja {

// The text of a quoted literal without its quotes; an unknown escape stays as written, as in Python. A malformed \x, \u
// or \U is a Failure at `line`.
std::string unescape_string(std::string_view literal, int line);
// Unescapes text that is not a template's: nothing if an escape is malformed.
std::optional<std::string> try_unescape_string(std::string_view literal);

}  // namespace quire::jinja
