#include "server/wire/characters.h"

namespace quire {

bool is_token_char(char c) {
  if ((lowered(c) >= 'a' && lowered(c) <= 'z') || (c >= '0' && c <= '9')) return true;
  return c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_field_value_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return c == '\t' || (byte >= 0x20 && byte != 0x7f);
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    c = lowered(c);
  return out;
}

}  // namespace quire
