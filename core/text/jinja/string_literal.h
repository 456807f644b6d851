// The escapes of Python string literals. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire::jinja {

// The text that the inside of a quoted literal stands for; an unknown escape stays as it is written, as in Python.
// A malformed \x, \u or \U is a Failure at `line`.
std::string unescape_string(std::string_view literal, int line);
// The same for text that is not a template's: nothing where an escape is malformed.
std::optional<std::string> try_unescape_string(std::string_view literal);

}  // namespace quire::jinja
