// HTTP's kinds of characters, and its ASCII case (RFC 9110, 5). Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// Characters of a token (5.6.2).
bool is_token_char(char c);
// Characters allowed in a field's value: tab, space, visible ASCII, and bytes above 0x7f.
bool is_field_value_char(char c);

inline char lowered(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}
std::string lowered(std::string_view text);

}  // namespace quire
