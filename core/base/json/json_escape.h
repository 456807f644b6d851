// Text as the inside of a JSON string. Any thread; pure functions. `text` must be valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// Appends `text` escaped, without quotes.
void append_json_escaped(std::string& out, std::string_view text);
// Appends `text` as a JSON string, with its quotes.
void append_json_string(std::string& out, std::string_view text);
std::string quote_json(std::string_view text);

}  // namespace quire
