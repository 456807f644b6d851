// Numbers as Python reads and writes them. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/text/jinja/values/value.h"

namespace quire::jinja {

std::string format_integer(Integer value, unsigned base = 10, bool upper = false);
std::string float_repr(double value);  // shortest text that reads back the same, in the layout of Python's repr

// int(text, base): surrounding space, sign, underscores between digits; base 0 reads the prefix. Nothing if Python
// raises or the number does not fit.
std::optional<Integer> parse_integer(std::string_view text, unsigned base);
std::optional<double> parse_float(std::string_view text);

// A format specification: [[fill]align][sign][#][0][width][,][.precision][type].
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  char grouping = '\0';
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char type = '\0';
};
FormatSpec parse_format_spec(std::string_view spec);  // fails like a ValueError
// Formats a number by a specification, padding included; fails if the type does not fit the value.
std::string format_number(const Value& value, const FormatSpec& spec);
Text pad(const Text& text, const FormatSpec& spec, char default_align);

}  // namespace quire::jinja
