#include "core/base/printable.h"

#include <fmt/core.h>

namespace quire {

std::string printable(std::string_view text, std::size_t max_length) {
  std::string out;
  for (const char c : text.substr(0, max_length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out.push_back(c);
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  if (text.size() > max_length) out += "...";
  return out;
}

std::string shortened(std::string text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  // Never cuts between the bytes of a character.
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80)
    --max_bytes;
  return text.substr(0, max_bytes) + "...";
}

std::string hex_digits(std::span<const unsigned char> bytes) {
  std::string digits;
  for (const unsigned char byte : bytes)
    digits += fmt::format("{:02x}", byte);
  return digits;
}

}  // namespace quire
