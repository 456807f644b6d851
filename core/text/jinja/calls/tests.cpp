// The tests of `x is name`.
#include <algorithm>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/builtins.h"
#include "core/text/jinja/values/repr.h"

namespace quire::jinja {
namespace {

template <bool (*Predicate)(const Value&)>
bool test_kind(Evaluator&, const Value& input, const Arguments& arguments) {
  const Bound bound("test", arguments, "");
  return Predicate(input);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is_bool();
}
bool is_true(const Value& value) {
  return value.is_bool() && value.as_bool();
}
bool is_false(const Value& value) {
  return value.is_bool() && !value.as_bool();
}
bool is_integer(const Value& value) {
  return value.is_int() || value.digits() != nullptr;
}
bool is_float(const Value& value) {
  return value.is_float() && value.digits() == nullptr;
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is_string();
}
bool is_mapping(const Value& value) {
  return value.is_dict();
}
bool is_escaped(const Value& value) {
  return value.is_markup();
}
// Undefined has a __call__ (which raises).
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is_object() && value.object()->callable());
}
// Undefined has a length and, when it is indexed, raises an error of its own type, which the test does not catch:
// Jinja2 returns true.
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_dict() || value.is_list() || value.is_tuple() ||
         value.is_range();
}
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_dict() || value.is_sequence() || value.is_range();
}

Integer remainder(Evaluator& evaluator, const Value& value, Integer divisor) {
  const Value rest = binary(evaluator, "%", value, Value::integer(divisor));
  return rest.is_float() ? static_cast<Integer>(rest.as_double() == 1.0   ? 1
                                                : rest.as_double() == 0.0 ? 0
                                                                          : 2)
                         : rest.as_integer();
}

bool test_odd(Evaluator& evaluator, const Value& input, const Arguments&) {
  return remainder(evaluator, input, 2) == 1;
}
bool test_even(Evaluator& evaluator, const Value& input, const Arguments&) {
  return remainder(evaluator, input, 2) == 0;
}

bool test_divisibleby(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, "num", 1);
  return !truthy(binary(evaluator, "%", input, bound[0]));
}

bool ask_text(Evaluator& evaluator, const Value& input, std::string_view method) {
  const Value text = Value::string(to_text(evaluator, input));
  return truthy(find_method(text, method)(evaluator, text, Arguments{}));
}
bool test_lower(Evaluator& evaluator, const Value& input, const Arguments&) {
  return ask_text(evaluator, input, "islower");
}
bool test_upper(Evaluator& evaluator, const Value& input, const Arguments&) {
  return ask_text(evaluator, input, "isupper");
}

bool test_sameas(Evaluator&, const Value& input, const Arguments& arguments) {
  const Bound bound("sameas", arguments, "other", 1);
  return input.same_as(bound[0]);
}

enum class Operator { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn };

template <Operator Which>
bool test_compare(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">=", "in"};
  const Bound bound(kNames[static_cast<std::size_t>(Which)], arguments, "b,/", 1);
  return compare(evaluator, kNames[static_cast<std::size_t>(Which)], input, bound[0]);
}

bool test_filter(Evaluator&, const Value& input, const Arguments&) {
  return input.is_string() && find_filter(input.bytes()) != nullptr;
}
bool test_test(Evaluator&, const Value& input, const Arguments&) {
  return input.is_string() && find_test(input.bytes()) != nullptr;
}

constexpr TestEntry kTests[] = {
    {"defined", test_kind<is_defined>},
    {"undefined", test_kind<is_undefined>},
    {"none", test_kind<is_none>},
    {"boolean", test_kind<is_boolean>},
    {"true", test_kind<is_true>},
    {"false", test_kind<is_false>},
    {"integer", test_kind<is_integer>},
    {"float", test_kind<is_float>},
    {"number", test_kind<is_number>},
    {"string", test_kind<is_string>},
    {"mapping", test_kind<is_mapping>},
    {"sequence", test_kind<is_sequence>},
    {"iterable", test_kind<is_iterable>},
    {"callable", test_kind<is_callable>},
    {"escaped", test_kind<is_escaped>},
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisibleby},
    {"lower", test_lower},
    {"upper", test_upper},
    {"sameas", test_sameas},
    {"filter", test_filter},
    {"test", test_test},
    {"in", test_compare<Operator::kIn>},
    {"==", test_compare<Operator::kEqual>},
    {"eq", test_compare<Operator::kEqual>},
    {"equalto", test_compare<Operator::kEqual>},
    {"!=", test_compare<Operator::kNotEqual>},
    {"ne", test_compare<Operator::kNotEqual>},
    {"<", test_compare<Operator::kLess>},
    {"lt", test_compare<Operator::kLess>},
    {"lessthan", test_compare<Operator::kLess>},
    {"<=", test_compare<Operator::kLessEqual>},
    {"le", test_compare<Operator::kLessEqual>},
    {">", test_compare<Operator::kGreater>},
    {"gt", test_compare<Operator::kGreater>},
    {"greaterthan", test_compare<Operator::kGreater>},
    {">=", test_compare<Operator::kGreaterEqual>},
    {"ge", test_compare<Operator::kGreaterEqual>},
};

}  // namespace

TestBody find_test(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kTests), std::end(kTests), [name](const TestEntry& entry) { return entry.name == name; });
  return found == std::end(kTests) ? nullptr : found->body;
}

bool Evaluator::apply_test(std::string_view name, const Value& input, const Arguments& arguments) {
  const auto body = find_test(name);
  if (body == nullptr) fail("No test named '" + std::string(name) + "'.");
  return body(*this, input, arguments);
}

}  // namespace quire::jinja
