// The nesting depth of JSON text, computed without parsing it. Any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace quire {

// Whether objects and arrays are nested deeper than `levels`; a guess if the text is not JSON.
inline bool nests_deeper(std::string_view text, std::size_t levels) {
  std::size_t depth = 0;
  bool inside_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside_string) {
      if (c == '\\') ++i;
      inside_string = c != '"';
    } else if (c == '"') {
      inside_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > levels) return true;
    } else if (depth > 0 && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return false;
}

}  // namespace quire
