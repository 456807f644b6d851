// The filters and the methods of Python's str, as tables by name. Immutable; any thread.
#pragma once

#include <functional>
#include <span>

#include "core/text/jinja/values/builtins.h"

namespace quire::jinja {

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> layout_filters();
std::span<const FilterEntry> value_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> selection_filters();

// The value that `attribute` ("a.b", an index, or nothing) names inside an item.
using Getter = std::function<Value(const Value&)>;
Getter attribute_getter(Evaluator& evaluator, const Value& attribute, const Value* fallback = nullptr);
Value ignore_case(const Value& value);  // strings in lower case, others unchanged

std::span<const MethodEntry> string_case_methods();    // upper, title, strip, isdigit, center, ...
std::span<const MethodEntry> string_search_methods();  // split, find, replace, join, startswith, ...

}  // namespace quire::jinja
