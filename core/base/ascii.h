// Letters of ASCII without their case; other bytes stay as they are. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace quire {

inline char lowered(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    c = lowered(c);
  return out;
}

}  // namespace quire
