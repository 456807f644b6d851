// map, select, reject, selectattr, rejectattr: filters that apply another filter or test to each item.
#include <algorithm>

#include "core/text/jinja/calls/call_tables.h"
#include "core/text/jinja/failure.h"

namespace quire::jinja {
namespace {

const Value* keyword(const Arguments& arguments, std::string_view name) {
  for (const auto& [known, value] : arguments.keywords) {
    if (known == name) return &value;
  }
  return nullptr;
}

Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

Getter map_function(Evaluator& evaluator, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    const Value* attribute = keyword(arguments, "attribute");
    if (attribute == nullptr) fail("map requires a filter argument");
    for (const auto& [name, value] : arguments.keywords) {
      if (name != "attribute" && name != "default") fail("Unexpected keyword argument '" + name + "'");
    }
    return attribute_getter(evaluator, *attribute, keyword(arguments, "default"));
  }
  if (!arguments.positional[0].is_string()) fail("map requires a filter name");
  return [&evaluator, name = arguments.positional[0].bytes(), rest = without_first(arguments, 1)](const Value& item) {
    return evaluator.apply_filter(name, item, rest);
  };
}

Value filter_map(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  std::vector<Value> mapped;
  if (!truthy(input)) return Value::generator({});
  const auto function = map_function(evaluator, arguments);
  for (const auto& item : evaluator.iterate(input)) {
    evaluator.charge(1);
    mapped.push_back(function(item));
  }
  return Value::generator(std::move(mapped));
}

template <bool ByAttribute, bool Wanted>
Value filter_select(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  if (!truthy(input)) return Value::generator({});
  constexpr std::size_t kTestAt = ByAttribute ? 1 : 0;
  if (arguments.positional.size() < kTestAt) fail("Missing parameter for attribute name");
  const auto getter = attribute_getter(evaluator, ByAttribute ? arguments.positional[0] : Value::none());
  const bool has_test = arguments.positional.size() > kTestAt;
  if (has_test && !arguments.positional[kTestAt].is_string()) fail("a test name must be a string");
  const Arguments rest = has_test ? without_first(arguments, kTestAt + 1) : Arguments{};
  std::vector<Value> kept;
  for (const auto& item : evaluator.iterate(input)) {
    evaluator.charge(1);
    const Value value = getter(item);
    const bool holds =
        has_test ? evaluator.apply_test(arguments.positional[kTestAt].bytes(), value, rest) : truthy(value);
    if (holds == Wanted) kept.push_back(item);
  }
  return Value::generator(std::move(kept));
}

constexpr FilterEntry kSelectionFilters[] = {
    {"map", filter_map},
    {"select", filter_select<false, true>},
    {"reject", filter_select<false, false>},
    {"selectattr", filter_select<true, true>},
    {"rejectattr", filter_select<true, false>},
};

}  // namespace

std::span<const FilterEntry> selection_filters() {
  return kSelectionFilters;
}

}  // namespace quire::jinja
