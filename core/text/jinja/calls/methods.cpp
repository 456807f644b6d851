// The methods and attributes of values: dict, list, tuple, range, int, float; str's are in string_*_methods.cpp.
#include <algorithm>
#include <cmath>
#include <span>

#include "core/text/jinja/calls/call_tables.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/builtins.h"

namespace quire::jinja {
namespace {

Value dict_get(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("get", arguments, "key,default,/", 1);
  if (!hashable(bound[0])) fail("unhashable type: '" + type_name(bound[0]) + "'");
  const Value* found = self.dict().find(bound[0]);
  return found != nullptr ? *found : bound.value_or(1, Value::none());
}

template <SequenceKind Which>
Value dict_view(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound("items", arguments, "");
  evaluator.charge(self.dict().size());
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries()) {
    if (Which == SequenceKind::kDictKeys) items.push_back(key);
    if (Which == SequenceKind::kDictValues) items.push_back(value);
    if (Which == SequenceKind::kDictItems) items.push_back(Value::tuple({key, value}));
  }
  return Value::sequence(Which, std::move(items));
}

Value copy(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("copy", arguments, "");
  return self;
}

Value sequence_count(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, "value,/", 1);
  evaluator.charge(self.weight());
  const auto items = iterate_value(evaluator, self);
  return Value::integer(
      std::count_if(items.begin(), items.end(), [&bound](const Value& item) { return equal(item, bound[0]); }));
}

Value sequence_index(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, "value,start,stop,/", 1);
  evaluator.charge(self.weight());
  const auto items = iterate_value(evaluator, self);
  const auto size = static_cast<Integer>(items.size());
  const auto place = [size](Integer index) { return std::clamp<Integer>(index < 0 ? index + size : index, 0, size); };
  const Integer stop = place(bound.integer(2, size));
  for (Integer i = place(bound.integer(1, 0)); i < stop; ++i) {
    if (equal(items[static_cast<std::size_t>(i)], bound[0])) return Value::integer(i);
  }
  fail("the value is not in the " + type_name(self));
}

Value int_bit_length(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("bit_length", arguments, "");
  Integer rest = self.as_integer() < 0 ? -self.as_integer() : self.as_integer();
  Integer bits = 0;
  for (; rest != 0; rest /= 2)
    ++bits;
  return Value::integer(bits);
}

Value float_is_integer(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("is_integer", arguments, "");
  return Value::boolean(std::isfinite(self.as_double()) && std::floor(self.as_double()) == self.as_double());
}

constexpr MethodEntry kDictMethods[] = {
    {"get", dict_get},
    {"items", dict_view<SequenceKind::kDictItems>},
    {"keys", dict_view<SequenceKind::kDictKeys>},
    {"values", dict_view<SequenceKind::kDictValues>},
    {"copy", copy},
};
constexpr MethodEntry kListMethods[] = {{"count", sequence_count}, {"index", sequence_index}, {"copy", copy}};
constexpr MethodEntry kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr MethodEntry kIntMethods[] = {{"bit_length", int_bit_length}, {"conjugate", copy}};
constexpr MethodEntry kFloatMethods[] = {{"is_integer", float_is_integer}, {"conjugate", copy}};

MethodBody find_in(std::span<const MethodEntry> methods, std::string_view name) {
  const auto found =
      std::find_if(methods.begin(), methods.end(), [name](const MethodEntry& entry) { return entry.name == name; });
  return found == methods.end() ? nullptr : found->body;
}

bool is_mutator(const Value& self, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (self.is_list()) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  return self.is_dict() && std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
}

std::optional<Value> number_attribute(const Value& value, std::string_view name) {
  if (name == "real") return unary_plus(value);
  if (name == "imag") return value.is_float() ? Value::real(0.0) : Value::integer(0);
  if (!value.is_integral()) return std::nullopt;
  if (name == "numerator") return unary_plus(value);
  if (name == "denominator") return Value::integer(1);
  return std::nullopt;
}

std::optional<Value> range_attribute(const Range& range, std::string_view name) {
  if (name == "start") return Value::integer(range.start);
  if (name == "stop") return Value::integer(range.stop);
  if (name == "step") return Value::integer(range.step);
  return std::nullopt;
}

}  // namespace

MethodBody find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString: {
      const auto found = find_in(string_search_methods(), name);
      return found != nullptr ? found : find_in(string_case_methods(), name);
    }
    case Kind::kDict: return find_in(kDictMethods, name);
    case Kind::kSequence:
      if (self.is_list()) return find_in(kListMethods, name);
      return self.is_tuple() ? find_in(kTupleMethods, name) : nullptr;
    case Kind::kRange: return find_in(kTupleMethods, name);
    case Kind::kBool:
    case Kind::kInt: return find_in(kIntMethods, name);
    case Kind::kFloat: return find_in(kFloatMethods, name);
    default: return nullptr;
  }
}

std::optional<Value> python_attribute(Evaluator& evaluator, const Value& object, std::string_view name) {
  if (object.is_object()) return object.object()->attribute(evaluator, name);
  if (const auto method = find_method(object, name)) {
    return Value::object(std::make_shared<Function>(
        std::string(name),
        [method, object](Evaluator& caller, const Arguments& arguments) { return method(caller, object, arguments); },
        "builtin_function_or_method", object.nesting() + 1));
  }
  if (is_mutator(object, name) || (name.starts_with("__") && name.ends_with("__"))) {
    return Value::undefined("access to attribute '" + std::string(name) + "' of '" + type_name(object) +
                            "' object is unsafe.");
  }
  if (object.is_sequence(SequenceKind::kGroup) && (name == "grouper" || name == "list"))
    return object.items()[name == "list" ? 1 : 0];
  if (object.is_number()) return number_attribute(object, name);
  return object.is_range() ? range_attribute(object.range(), name) : std::nullopt;
}

}  // namespace quire::jinja
