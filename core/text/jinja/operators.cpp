#include "core/text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/builtins.h"
#include "core/text/jinja/values/repr.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

[[noreturn]] void unsupported(std::string_view op, const Value& left, const Value& right) {
  if (left.is_undefined()) fail(left.undefined_reason());
  if (right.is_undefined()) fail(right.undefined_reason());
  fail("unsupported operand type(s) for " + std::string(op) + ": '" + type_name(left) + "' and '" + type_name(right) +
       "'");
}

[[noreturn]] void too_large() {
  fail("an integer does not fit 128 bits");
}

Integer floor_divide(Integer a, Integer b) {
  if (b == 0) fail("integer division or modulo by zero");
  const Integer quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double floor_modulo(double a, double b) {
  if (b == 0.0) fail("float modulo");
  double rest = std::fmod(a, b);
  if (rest == 0.0) return std::copysign(0.0, b);
  if ((rest < 0) != (b < 0)) rest += b;
  return rest;
}

Integer integer_power(Integer base, Integer exponent) {
  Integer result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

Value power(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral() && right.as_integer() >= 0) {
    return Value::integer(integer_power(left.as_integer(), right.as_integer()));
  }
  if (left.as_double() == 0.0 && right.as_double() < 0) fail("0.0 cannot be raised to a negative power");
  const double result = std::pow(left.as_double(), right.as_double());
  if (std::isinf(result) && std::isfinite(left.as_double()) && std::isfinite(right.as_double()))
    fail("the result is out of range");
  if (std::isnan(result) && left.as_double() < 0) fail("complex numbers are not supported");
  return Value::real(result);
}

Value integer_arithmetic(std::string_view op, Integer a, Integer b) {
  Integer result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "//") {
    result = floor_divide(a, b);
  } else {
    result = a - floor_divide(a, b) * b;
  }
  if (overflow) too_large();
  return Value::integer(result);
}

Value arithmetic(std::string_view op, const Value& left, const Value& right) {
  if (op == "**") return power(left, right);
  if (op != "/" && left.is_integral() && right.is_integral())
    return integer_arithmetic(op, left.as_integer(), right.as_integer());
  const double a = left.as_double();
  const double b = right.as_double();
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (op == "%") return Value::real(floor_modulo(a, b));
  if (b == 0.0) fail(op == "/" ? "division by zero" : "float floor division by zero");
  if (op == "/") return Value::real(a / b);
  // Python computes the quotient after subtracting the remainder, so that rounding does not carry it over.
  return Value::real(std::round((a - floor_modulo(a, b)) / b));
}

Value repeat_string(Evaluator& evaluator, const Value& value, Integer count) {
  const Text& text = value.text();
  if (count <= 0 || text.empty()) return Value::string(Text(), value.is_markup());
  if (count > static_cast<Integer>(1) << 40) fail("a repeated string is too long");
  const auto times = static_cast<std::size_t>(count);
  evaluator.check_length(text.size() * std::min(times, (std::size_t{1} << 62) / text.size()));
  evaluator.charge(text.size() * times / 32 + 1);
  Text out;
  for (std::size_t i = 0; i < times; ++i)
    out.append(text);
  return Value::string(std::move(out), value.is_markup());
}

Value repeat_sequence(Evaluator& evaluator, const Value& value, Integer count) {
  const auto& items = value.items();
  if (count <= 0 || items.empty()) return Value::sequence(value.sequence().kind, {});
  if (count > static_cast<Integer>(kMaxWeight)) fail("a repeated list is too long");
  evaluator.charge(items.size() * static_cast<std::size_t>(count));
  std::vector<Value> out;
  out.reserve(items.size() * static_cast<std::size_t>(count));
  for (Integer i = 0; i < count; ++i)
    out.insert(out.end(), items.begin(), items.end());
  return Value::sequence(value.sequence().kind, std::move(out));
}

Value add_strings(Evaluator& evaluator, const Value& left, const Value& right) {
  const bool markup = left.is_markup() || right.is_markup();
  const auto part = [markup](const Value& value) {
    return markup && !value.is_markup() ? escape_html(value.text()) : value.text();
  };
  evaluator.check_length(left.text().size() + right.text().size());
  evaluator.charge((left.text().size() + right.text().size()) / 32);
  Text text = part(left);
  text.append(part(right));
  return Value::string(std::move(text), markup);
}

Value add(Evaluator& evaluator, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) return add_strings(evaluator, left, right);
  if ((left.is_list() && right.is_list()) || (left.is_tuple() && right.is_tuple())) {
    evaluator.charge(left.items().size() + right.items().size());
    auto items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    return Value::sequence(left.sequence().kind, std::move(items));
  }
  if (left.is_string() && !right.is_undefined())
    fail("can only concatenate str (not \"" + type_name(right) + "\") to str");
  unsupported("+", left, right);
}

Value multiply(Evaluator& evaluator, const Value& left, const Value& right) {
  for (const auto& [value, count] : {std::pair(&left, &right), std::pair(&right, &left)}) {
    if (!count->is_integral()) continue;
    if (value->is_string()) return repeat_string(evaluator, *value, count->as_integer());
    if (value->is_list() || value->is_tuple()) return repeat_sequence(evaluator, *value, count->as_integer());
  }
  unsupported("*", left, right);
}

int sign_of(double difference) {
  return difference < 0 ? -1 : difference > 0 ? 1 : 0;
}

int order_sequences(Evaluator& evaluator, const std::vector<Value>& a, const std::vector<Value>& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!equal(a[i], b[i])) return order(evaluator, a[i], b[i]);
  }
  return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
}

bool contains_in_text(const Value& container, const Value& item) {
  if (!item.is_string()) fail("'in <string>' requires string as left operand, not " + type_name(item));
  return container.bytes().find(item.bytes()) != std::string::npos;
}

}  // namespace

Value negate(const Value& value) {
  if (value.is_float()) return Value::real(-value.as_double());
  if (value.is_integral()) return integer_arithmetic("-", 0, value.as_integer());
  if (value.is_undefined()) fail(value.undefined_reason());
  fail("bad operand type for unary -: '" + type_name(value) + "'");
}

Value unary_plus(const Value& value) {
  if (value.is_float()) return value;
  if (value.is_integral()) return Value::integer(value.as_integer());
  if (value.is_undefined()) fail(value.undefined_reason());
  fail("bad operand type for unary +: '" + type_name(value) + "'");
}

Value binary(Evaluator& evaluator, std::string_view op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return arithmetic(op, left, right);
  if (op == "+") return add(evaluator, left, right);
  if (op == "*") return multiply(evaluator, left, right);
  if (op == "%" && left.is_string()) return percent_format(evaluator, left, right);
  unsupported(op == "**" ? "** or pow()" : op, left, right);
}

int order(Evaluator& evaluator, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.as_integer() < right.as_integer() ? -1 : left.as_integer() > right.as_integer() ? 1 : 0;
  }
  if (left.is_number() && right.is_number()) return sign_of(left.as_double() - right.as_double());
  if (left.is_string() && right.is_string()) {
    const int result = left.bytes().compare(right.bytes());  // byte order is code point order in UTF-8
    return result < 0 ? -1 : result > 0 ? 1 : 0;
  }
  if ((left.is_list() && right.is_list()) || (left.is_tuple() && right.is_tuple())) {
    return order_sequences(evaluator, left.items(), right.items());
  }
  if (left.is_undefined()) fail(left.undefined_reason());
  if (right.is_undefined()) fail(right.undefined_reason());
  fail("'<' not supported between instances of '" + type_name(left) + "' and '" + type_name(right) + "'");
}

bool contains(Evaluator& evaluator, const Value& container, const Value& item) {
  evaluator.charge(container.is_dict() ? 1 : container.weight());
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString: return contains_in_text(container, item);
    case Kind::kDict:
      if (!hashable(item)) fail("unhashable type: '" + type_name(item) + "'");
      return container.dict().find(item) != nullptr;
    case Kind::kSequence:
    case Kind::kRange: {
      const auto items = iterate_value(evaluator, container);
      return std::any_of(items.begin(), items.end(),
                         [&item](const Value& candidate) { return equal(candidate, item); });
    }
    default: fail("argument of type '" + type_name(container) + "' is not iterable");
  }
}

bool compare(Evaluator& evaluator, std::string_view op, const Value& left, const Value& right) {
  if (op == "in") return contains(evaluator, right, left);
  if (op == "not in") return !contains(evaluator, right, left);
  evaluator.charge(std::min(left.weight(), right.weight()));
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  const bool nan =
      (left.is_float() && std::isnan(left.as_double())) || (right.is_float() && std::isnan(right.as_double()));
  const int result = order(evaluator, left, right);
  if (nan) return false;
  if (op == "<") return result < 0;
  if (op == "<=") return result <= 0;
  return op == ">" ? result > 0 : result >= 0;
}

}  // namespace quire::jinja
