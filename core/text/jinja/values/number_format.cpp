#include "core/text/jinja/values/number_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

constexpr std::size_t kMaxWidth = 1 << 20;
constexpr std::size_t kMaxPrecision = 1000;

std::string_view strip_ascii(std::string_view text) {
  while (!text.empty() && is_space(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return text;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// The digits without Python's underscores between them; nothing if an underscore is misplaced.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0 &&
                         std::isalnum(static_cast<unsigned char>(text[i + 1])) != 0;
    if (!between) return std::nullopt;
  }
  return digits;
}

bool has_prefix(std::string_view text, unsigned base) {
  if (text.size() < 2 || text[0] != '0') return false;
  const char letter = static_cast<char>(text[1] | 0x20);
  return (base == 16 && letter == 'x') || (base == 8 && letter == 'o') || (base == 2 && letter == 'b');
}

}  // namespace

std::string format_integer(Integer value, unsigned base, bool upper) {
  const bool negative = value < 0;
  __extension__ typedef unsigned __int128 Unsigned;
  Unsigned rest = negative ? Unsigned{0} - static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
  std::string digits;
  do {
    const auto digit = static_cast<unsigned>(rest % base);
    digits += static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
    rest /= base;
  } while (rest != 0);
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  const std::size_t exponent_at = text.find('e');
  const int exponent = std::atoi(text.c_str() + exponent_at + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const std::size_t sign = text[0] == '-' ? 1 : 0;
  std::string digits = text.substr(sign, 1);
  if (exponent_at > sign + 2) digits += text.substr(sign + 2, exponent_at - sign - 2);
  std::string out = text.substr(0, sign);
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto point = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < point) digits.append(point - digits.size(), '0');
  out += digits.substr(0, point) + ".";
  return out + (digits.size() > point ? digits.substr(point) : "0");
}

std::optional<Integer> parse_integer(std::string_view text, unsigned base) {
  text = strip_ascii(text);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  for (const unsigned candidate : {16U, 8U, 2U}) {
    if ((base == 0 || base == candidate) && has_prefix(text, candidate)) {
      base = candidate;
      text.remove_prefix(2);
      if (!text.empty() && text[0] == '_') text.remove_prefix(1);
      break;
    }
  }
  if (base == 0) base = 10;
  const auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  Integer value = 0;
  for (const char c : *digits) {
    const int digit = digit_value(c);
    if (digit >= static_cast<int>(base)) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<Integer>(base), &value)) return std::nullopt;
    if (__builtin_add_overflow(value, static_cast<Integer>(digit), &value)) return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  const auto digits = without_underscores(strip_ascii(text));
  if (!digits || digits->empty()) return std::nullopt;
  std::string lower = *digits;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
  const std::string unsigned_part = lower[0] == '-' || lower[0] == '+' ? lower.substr(1) : lower;
  const bool word = unsigned_part == "inf" || unsigned_part == "infinity" || unsigned_part == "nan";
  if (!word && lower.find_first_not_of("0123456789+-.e") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(lower.c_str(), &end);
  if (end != lower.c_str() + lower.size()) return std::nullopt;
  return value;
}

namespace {

std::size_t read_count(std::string_view spec, std::size_t& i) {
  std::size_t count = 0;
  while (i < spec.size() && spec[i] >= '0' && spec[i] <= '9') {
    count = count * 10 + static_cast<std::size_t>(spec[i++] - '0');
    if (count > kMaxWidth) fail("the width in a format specification is too large");
  }
  return count;
}

bool is_align(char c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

void read_fill(std::string_view spec, std::size_t& i, FormatSpec& out) {
  if (spec.empty()) return;
  std::size_t after = 0;
  next_code_point(spec, after);
  if (after < spec.size() && is_align(spec[after])) {
    out.fill = std::string(spec.substr(0, after));
    out.align = spec[after];
    i = after + 1;
  } else if (is_align(spec[0])) {
    out.align = spec[0];
    i = 1;
  }
}

}  // namespace

FormatSpec parse_format_spec(std::string_view spec) {
  FormatSpec out;
  std::size_t i = 0;
  read_fill(spec, i, out);
  const auto at = [&spec, &i](std::string_view any) {
    return i < spec.size() && any.find(spec[i]) != std::string_view::npos;
  };
  if (at("+- ")) out.sign = spec[i++];
  if (at("#")) {
    out.alternate = true;
    ++i;
  }
  if (at("0")) {
    if (out.align == '\0') {
      out.fill = "0";
      out.align = '=';
    }
    ++i;
  }
  out.width = read_count(spec, i);
  if (at(",_")) out.grouping = spec[i++];
  if (at(".")) {
    ++i;
    if (!at("0123456789")) fail("Format specifier missing precision");
    out.precision = read_count(spec, i);
  }
  if (i < spec.size()) out.type = spec[i++];
  if (i != spec.size()) fail("Invalid format specifier '" + std::string(spec) + "'");
  return out;
}

Text pad(const Text& text, const FormatSpec& spec, char default_align) {
  const std::size_t length = num_code_points(text.bytes());
  if (length >= spec.width) return text;
  const std::size_t missing = spec.width - length;
  const char align = spec.align == '\0' ? default_align : spec.align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  Text out;
  for (std::size_t i = 0; i < left; ++i)
    out.append(spec.fill, true);
  out.append(text);
  for (std::size_t i = left; i < missing; ++i)
    out.append(spec.fill, true);
  return out;
}

namespace {

std::string group_digits(const std::string& number, char separator, std::size_t every) {
  const std::size_t point = std::min(number.find_first_of(".e"), number.size());
  std::string out = number.substr(0, point);
  for (std::size_t i = out.size(); i > every; i -= every)
    out.insert(i - every, 1, separator);
  return out + number.substr(point);
}

std::string printf_double(double value, char type, std::size_t precision, bool alternate) {
  if (precision > kMaxPrecision) fail("the precision in a format specification is too large");
  const std::string format = std::string("%") + (alternate ? "#" : "") + ".*" + type;
  std::string out(precision + 400, '\0');
  const int length = std::snprintf(out.data(), out.size(), format.c_str(), static_cast<int>(precision), value);
  out.resize(static_cast<std::size_t>(length));
  return out;
}

std::string float_digits(double value, const FormatSpec& spec) {
  const std::size_t precision = spec.precision.value_or(6);
  switch (spec.type) {
    case 'e':
    case 'E':
    case 'f':
    case 'F': return printf_double(value, spec.type, precision, spec.alternate);
    case 'g':
    case 'G':
    case 'n':
      return printf_double(value, spec.type == 'G' ? 'G' : 'g', std::max<std::size_t>(precision, 1), spec.alternate);
    case '%': return printf_double(value * 100, 'f', precision, spec.alternate) + "%";
    case '\0': {
      if (!spec.precision) return float_repr(value);
      std::string out = printf_double(value, 'g', std::max<std::size_t>(precision, 1), spec.alternate);
      if (out.find_first_of(".en") == std::string::npos && std::isfinite(value)) out += ".0";
      return out;
    }
    default: fail(std::string("Unknown format code '") + spec.type + "' for object of type 'float'");
  }
}

std::string integer_digits(Integer value, const FormatSpec& spec) {
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n': return format_integer(value);
    case 'x': return (spec.alternate ? "0x" : "") + format_integer(value, 16);
    case 'X': return (spec.alternate ? "0X" : "") + format_integer(value, 16, true);
    case 'o': return (spec.alternate ? "0o" : "") + format_integer(value, 8);
    case 'b': return (spec.alternate ? "0b" : "") + format_integer(value, 2);
    case 'c': {
      std::string out;
      append_utf8(out, static_cast<char32_t>(value));
      return out;
    }
    default: fail(std::string("Unknown format code '") + spec.type + "' for object of type 'int'");
  }
}

}  // namespace

std::string format_number(const Value& value, const FormatSpec& spec) {
  static constexpr std::string_view kFloatTypes = "eEfFgG%";
  const bool as_float =
      value.is_float() || (spec.type != '\0' && kFloatTypes.find(spec.type) != std::string_view::npos);
  const bool negative = as_float ? std::signbit(value.as_double()) : value.as_integer() < 0;
  std::string digits;
  if (as_float) {
    digits = float_digits(std::fabs(value.as_double()), spec);
  } else {
    const Integer integer = value.as_integer();
    digits = integer_digits(negative ? -integer : integer, spec);
  }
  if (spec.grouping != '\0') {
    const bool by_four = spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b';
    digits = group_digits(digits, spec.grouping, by_four ? 4 : 3);
  }
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.align == '=' && sign.size() + digits.size() < spec.width) {
    for (std::size_t missing = spec.width - sign.size() - digits.size(); missing > 0; --missing)
      sign += spec.fill;
  }
  return pad(Text(sign + digits, true), spec, '>').bytes();
}

}  // namespace quire::jinja
