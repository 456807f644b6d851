#include "core/text/jinja/values/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace quire::jinja {
namespace {

// Characters whose full upper case is longer than one character and which occur in living text
// (Unicode SpecialCasing.txt; the polytonic Greek entries are left to their simple mapping).
struct SpecialCase {
  char32_t character;
  std::string_view upper;
  std::string_view title;
};
constexpr std::array<SpecialCase, 13> kSpecialCases{{
    {0xDF, "SS", "Ss"},
    {0x149, "\xCA\xBCN", "\xCA\xBCN"},
    {0x1F0, "J\xCC\x8C", "J\xCC\x8C"},
    {0x390, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x3B0, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
}};

const SpecialCase* find_special(char32_t c) {
  const auto found =
      std::find_if(kSpecialCases.begin(), kSpecialCases.end(), [c](const auto& s) { return s.character == c; });
  return found == kSpecialCases.end() ? nullptr : &*found;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

std::string encoded(utf8proc_int32_t c) {
  std::string out;
  append_utf8(out, static_cast<char32_t>(c));
  return out;
}

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) {
    ++position;
    return first;
  }
  utf8proc_int32_t code_point = 0;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position),
                                       static_cast<utf8proc_ssize_t>(text.size() - position), &code_point);
  if (length <= 0) {
    ++position;
    return 0xFFFD;
  }
  position += static_cast<std::size_t>(length);
  return static_cast<char32_t>(code_point);
}

void append_utf8(std::string& out, char32_t code_point) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) code_point = 0xFFFD;
  utf8proc_uint8_t buffer[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(length));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::size_t num_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text)
    count += is_continuation(static_cast<unsigned char>(c)) ? 0 : 1;
  return count;
}

std::vector<std::size_t> code_point_offsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_continuation(static_cast<unsigned char>(text[i]))) offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_alpha(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
  }
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  const bool superscript = c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079);
  return is_decimal(c) || superscript || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}
bool is_title(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}
bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || is_title(c);
}
bool is_word(char32_t c) {
  return c == '_' || is_alpha(c) || is_numeric(c);
}

std::string upper_of(char32_t c) {
  if (const auto* special = find_special(c)) return std::string(special->upper);
  return encoded(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

std::string lower_of(char32_t c) {
  if (c == 0x130) return "i\xCC\x87";
  return encoded(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

std::string title_of(char32_t c) {
  if (const auto* special = find_special(c)) return std::string(special->title);
  return encoded(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

std::string folded(char32_t c) {
  utf8proc_int32_t code_points[8];
  int boundary_class = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), code_points, 8, UTF8PROC_CASEFOLD, &boundary_class);
  std::string out;
  for (utf8proc_ssize_t i = 0; i < count && i < 8; ++i)
    append_utf8(out, static_cast<char32_t>(code_points[i]));
  return out;
}

}  // namespace quire::jinja
