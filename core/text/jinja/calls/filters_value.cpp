// Filters over single values: default, int, float, round, abs, length, attr, items, filesizeformat.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/text/jinja/calls/call_tables.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/number_format.h"
#include "core/text/jinja/values/repr.h"

namespace quire::jinja {
namespace {

Value filter_default(Evaluator&, const Value& input, const Arguments& arguments) {
  const Bound bound("default", arguments, "default_value,boolean");
  if (input.is_undefined() || (bound.flag(1) && !truthy(input))) return bound.value_or(0, Value::string(Text()));
  return input;
}

std::optional<Integer> truncated(double value) {
  if (!std::isfinite(value) || std::fabs(value) >= 1e38) return std::nullopt;
  return static_cast<Integer>(value);
}

Value filter_int(Evaluator&, const Value& input, const Arguments& arguments) {
  const Bound bound("int", arguments, "default,base");
  if (input.is_undefined()) fail(input.undefined_reason());
  const Value fallback = bound.value_or(0, Value::integer(0));
  std::optional<Integer> result;
  if (input.is_integral()) return Value::integer(input.as_integer());
  if (input.digits() != nullptr) return input;
  if (input.is_float()) {
    result = truncated(input.as_double());
  } else if (input.is_string()) {
    const Integer base = bound.integer(1, 10);
    if (base != 0 && (base < 2 || base > 36)) return fallback;
    result = parse_integer(input.bytes(), static_cast<unsigned>(base));
    if (!result) {
      if (const auto number = parse_float(input.bytes())) result = truncated(*number);
    }
  }
  return result ? Value::integer(*result) : fallback;
}

Value filter_float(Evaluator&, const Value& input, const Arguments& arguments) {
  const Bound bound("float", arguments, "default");
  if (input.is_undefined()) fail(input.undefined_reason());
  if (input.is_number()) return Value::real(input.as_double());
  if (input.is_string()) {
    if (const auto number = parse_float(input.bytes())) return Value::real(*number);
  }
  return bound.value_or(0, Value::real(0.0));
}

// Half to even on the decimal digits that the shortest exact notation has, as Python's round() does.
double round_half_even(double value, int precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < -300) return std::copysign(0.0, value);
  if (precision >= 0) {
    char buffer[700];
    std::snprintf(buffer, sizeof buffer, "%.*f", precision, value);
    return std::strtod(buffer, nullptr);
  }
  const double scale = std::pow(10.0, -precision);
  return std::nearbyint(value / scale) * scale;
}

Value round_integer(Integer value, int precision) {
  if (precision >= 0) return Value::integer(value);
  if (precision < -38) return Value::integer(0);
  Integer scale = 1;
  for (int i = 0; i < -precision; ++i)
    scale *= 10;
  const Integer rest = ((value % scale) + scale) % scale;
  Integer rounded = value - rest;
  if (rest * 2 > scale || (rest * 2 == scale && (rounded / scale) % 2 != 0)) rounded += scale;
  return Value::integer(rounded);
}

Value filter_round(Evaluator&, const Value& input, const Arguments& arguments) {
  const Bound bound("round", arguments, "precision,method");
  const std::string method = bound.text(1, "common").bytes();
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  const int precision = static_cast<int>(std::clamp<Integer>(bound.integer(0, 0), -1000, 1000));
  if (input.is_undefined()) fail(input.undefined_reason());
  if (!input.is_number()) fail("type " + type_name(input) + " doesn't define __round__ method");
  if (method == "common") {
    return input.is_integral() ? round_integer(input.as_integer(), precision)
                               : Value::real(round_half_even(input.as_double(), precision));
  }
  const double scale = std::pow(10.0, precision);
  const double scaled = input.as_double() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) + 0.0 : std::floor(scaled) + 0.0) / scale);
}

Value filter_abs(Evaluator&, const Value& input, const Arguments& arguments) {
  const Bound bound("abs", arguments, "");
  if (input.is_float()) return Value::real(std::fabs(input.as_double()));
  if (input.is_integral()) return input.as_integer() < 0 ? negate(input) : unary_plus(input);
  fail("bad operand type for abs(): '" + type_name(input) + "'");
}

Value filter_length(Evaluator&, const Value& input, const Arguments& arguments) {
  const Bound bound("length", arguments, "");
  const auto length = length_of(input);
  if (!length) fail("object of type '" + type_name(input) + "' has no len()");
  return Value::count(*length);
}

Value filter_attr(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("attr", arguments, "name", 1);
  if (input.is_undefined()) fail(input.undefined_reason());
  const std::string name = bound.text(0, "").bytes();
  if (auto found = python_attribute(evaluator, input, name)) return *found;
  return undefined_member(input, bound[0]);
}

Value filter_items(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("items", arguments, "");
  if (input.is_undefined()) return Value::generator({});
  if (!input.is_dict()) fail("Can only get item pairs from a mapping.");
  return Value::generator(find_method(input, "items")(evaluator, input, {}).items());
}

Value filter_filesizeformat(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("filesizeformat", arguments, "binary");
  static constexpr const char* kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr const char* kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  const auto number =
      input.is_number() ? std::optional(input.as_double()) : parse_float(to_text(evaluator, input).bytes());
  if (!number) fail("could not convert the value to a number");
  const double base = bound.flag(0) ? 1024.0 : 1000.0;
  if (*number == 1.0) return Value::string("1 Byte");
  char buffer[400];
  if (*number < base) {
    std::snprintf(buffer, sizeof buffer, "%.0f Bytes", std::trunc(*number) + 0.0);
    return Value::string(std::string_view(buffer));
  }
  double unit = base * base;
  std::size_t prefix = 0;
  for (; *number >= unit && prefix < 7; ++prefix)
    unit *= base;
  std::snprintf(buffer, sizeof buffer, "%.1f %s", base * *number / unit, (bound.flag(0) ? kBinary : kDecimal)[prefix]);
  return Value::string(std::string_view(buffer));
}

constexpr FilterEntry kValueFilters[] = {
    {"d", filter_default},
    {"default", filter_default},
    {"int", filter_int},
    {"float", filter_float},
    {"round", filter_round},
    {"abs", filter_abs},
    {"count", filter_length},
    {"length", filter_length},
    {"attr", filter_attr},
    {"items", filter_items},
    {"filesizeformat", filter_filesizeformat},
};

}  // namespace

std::span<const FilterEntry> value_filters() {
  return kValueFilters;
}

FilterBody find_filter(std::string_view name) {
  for (const auto filters :
       {text_filters(), value_filters(), sequence_filters(), selection_filters(), layout_filters()}) {
    const auto found =
        std::find_if(filters.begin(), filters.end(), [name](const FilterEntry& entry) { return entry.name == name; });
    if (found != filters.end()) return found->body;
  }
  return nullptr;
}

Value Evaluator::apply_filter(std::string_view name, const Value& input, const Arguments& arguments) {
  const auto body = find_filter(name);
  if (body == nullptr) fail("No filter named '" + std::string(name) + "'.");
  return body(*this, input, arguments);
}

}  // namespace quire::jinja
