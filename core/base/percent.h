// Percent-encoding of URIs (RFC 3986, 2.1). Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire {

// The byte of an escape such as %41 at the front of a text; nullopt if there is none.
std::optional<char> escaped_byte(std::string_view text);
// nullopt: a '%' without two hexadecimal digits.
std::optional<std::string> percent_decoded(std::string_view text);
// A '%' without two hexadecimal digits stands for itself.
std::string leniently_decoded(std::string_view text);

}  // namespace quire
