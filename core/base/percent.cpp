#include "core/base/percent.h"

#include <charconv>

namespace quire {

std::optional<char> escaped_byte(std::string_view text) {
  if (text.size() < 3 || text.front() != '%') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + 3, value, 16);
  if (error != std::errc() || end != text.data() + 3) return std::nullopt;
  return static_cast<char>(value);
}

namespace {

// nullopt where the text is strict and an escape is malformed.
std::optional<std::string> decoded(std::string_view text, bool is_strict) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = escaped_byte(text.substr(i));
    if (is_strict && !byte && text[i] == '%') return std::nullopt;
    out += byte.value_or(text[i]);
    if (byte) i += 2;
  }
  return out;
}

}  // namespace

std::optional<std::string> percent_decoded(std::string_view text) {
  return decoded(text, true);
}

std::string leniently_decoded(std::string_view text) {
  return *decoded(text, false);
}

}  // namespace quire
