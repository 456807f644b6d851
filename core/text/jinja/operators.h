// Python's operators over values. One thread at a time. Invariant: every operation is charged to the evaluator by the
// size of its operands; an operation that Python refuses is a Failure.
#pragma once

#include <optional>
#include <string_view>

#include "core/text/jinja/evaluator.h"
#include "core/text/jinja/values/value.h"

namespace quire::jinja {

Value negate(const Value& value);
Value unary_plus(const Value& value);
Value binary(Evaluator& evaluator, std::string_view op, const Value& left, const Value& right);  // + - * / // % **
bool compare(Evaluator& evaluator, std::string_view op, const Value& left,
             const Value& right);  // == != < <= > >= in, not in
// Negative, zero or positive; fails on values without an order. NaN is unordered, which counts as "not less".
int order(Evaluator& evaluator, const Value& left, const Value& right);
bool contains(Evaluator& evaluator, const Value& container, const Value& item);

Value slice(Evaluator& evaluator, const Value& object, const Value& start, const Value& stop, const Value& step);
std::optional<Value> subscript(const Value& object, const Value& key);
Value undefined_member(const Value& object, const Value& key);
std::vector<Value> iterate_value(Evaluator& evaluator, const Value& value);
std::optional<std::size_t> length_of(const Value& value);  // Python's len(); nothing if it has none

// The characters of a string as strings, marks kept.
std::vector<Value> characters(const Text& text);

}  // namespace quire::jinja
