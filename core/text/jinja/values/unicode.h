// Code points of UTF-8 text, and the properties of characters that Python's str methods ask for. Any thread.
// Positions are byte offsets; invalid bytes count as one code point each (U+FFFD), so nothing here fails.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

// The code point at `position`, which moves past it.
char32_t next_code_point(std::string_view text, std::size_t& position);
void append_utf8(std::string& out, char32_t code_point);
std::size_t num_code_points(std::string_view text);
// Byte offsets of every code point, and the end.
std::vector<std::size_t> code_point_offsets(std::string_view text);
bool is_ascii(std::string_view text);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // characters that repr() does not escape
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);
bool is_word(char32_t c);  // \w of Python's re

// Full case mappings (one character may become several).
std::string upper_of(char32_t c);
std::string lower_of(char32_t c);
std::string title_of(char32_t c);
std::string folded(char32_t c);  // str.casefold

}  // namespace quire::jinja
