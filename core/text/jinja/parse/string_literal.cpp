#include "core/text/jinja/parse/lexer.h"

#include <cctype>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

char simple_escape(char c) {
  switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'a': return '\a';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'v': return '\v';
    case '\\':
    case '\'':
    case '"': return c;
    default: return '\0';
  }
}

std::size_t num_hex_digits(char c) {
  if (c == 'x') return 2;
  if (c == 'u') return 4;
  return c == 'U' ? 8 : 0;
}

char32_t read_hex(std::string_view literal, std::size_t& position, std::size_t count, int line) {
  char32_t code_point = 0;
  for (std::size_t i = 0; i < count; ++i, ++position) {
    if (position >= literal.size() || std::isxdigit(static_cast<unsigned char>(literal[position])) == 0) {
      fail("truncated \\x, \\u or \\U escape in a string", line);
    }
    const char c = literal[position];
    code_point = code_point * 16 + static_cast<char32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return code_point;
}

char32_t read_octal(std::string_view literal, std::size_t& position) {
  char32_t code_point = 0;
  for (int i = 0; i < 3 && position < literal.size() && literal[position] >= '0' && literal[position] <= '7';
       ++i, ++position) {
    code_point = code_point * 8 + static_cast<char32_t>(literal[position] - '0');
  }
  return code_point;
}

}  // namespace

std::string unescape_string(std::string_view literal, int line) {
  std::string out;
  char32_t high = 0;  // a surrogate waiting for its other half
  for (std::size_t i = 0; i < literal.size();) {
    if (literal[i] != '\\' || i + 1 >= literal.size()) {
      out += literal[i++];
      continue;
    }
    const char c = literal[i + 1];
    if (const char simple = simple_escape(c)) {
      out += simple;
      i += 2;
    } else if (c == '\n') {
      i += 2;
    } else if (const auto digits = num_hex_digits(c)) {
      i += 2;
      const char32_t code_point = read_hex(literal, i, digits, line);
      if (code_point >= 0xD800 && code_point < 0xDC00) {
        high = code_point;
        continue;
      }
      const bool low = high != 0 && code_point >= 0xDC00 && code_point < 0xE000;
      append_utf8(out, low ? 0x10000 + ((high - 0xD800) << 10) + (code_point - 0xDC00) : code_point);
      high = 0;
    } else if (c >= '0' && c <= '7') {
      append_utf8(out, read_octal(literal, ++i));
    } else {
      out += '\\';
      ++i;
    }
  }
  return out;
}

std::optional<std::string> try_unescape_string(std::string_view literal) {
  try {
    return unescape_string(literal, 0);
  } catch (const Failure&) {
    return std::nullopt;
  }
}

}  // namespace quire::jinja
