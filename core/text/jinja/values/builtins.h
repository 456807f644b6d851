// Built-ins of templates: global functions, filters, tests, and the methods of Python's types. Immutable; any thread.
// Invariant: methods that change a list or dict are absent, as in Jinja2's immutable sandbox.
#pragma once

#include <optional>
#include <string_view>

#include "core/text/jinja/evaluator.h"
#include "core/text/jinja/values/object.h"
#include "core/text/jinja/values/value.h"

namespace quire::jinja {

using FilterBody = Value (*)(Evaluator&, const Value& input, const Arguments& arguments);
using TestBody = bool (*)(Evaluator&, const Value& input, const Arguments& arguments);
using MethodBody = Value (*)(Evaluator&, const Value& self, const Arguments& arguments);

struct FilterEntry {
  std::string_view name;
  FilterBody body;
};
struct TestEntry {
  std::string_view name;
  TestBody body;
};
struct MethodEntry {
  std::string_view name;
  MethodBody body;
};

std::optional<Value> find_global(std::string_view name);
FilterBody find_filter(std::string_view name);                     // null: unknown
TestBody find_test(std::string_view name);                         // null: unknown
MethodBody find_method(const Value& self, std::string_view name);  // null: unknown
// A method bound to its object, or a data attribute; nothing if Python has none.
std::optional<Value> python_attribute(Evaluator& evaluator, const Value& object, std::string_view name);

Text escape_html(const Text& text);
Value percent_format(Evaluator& evaluator, const Value& format, const Value& arguments);  // format % arguments
Value brace_format(Evaluator& evaluator, const Value& self, const Arguments& arguments);  // str.format

// str methods that filters share.
enum class Side { kLeft, kRight, kBoth };
Text strip(const Text& text, const std::string* characters, Side side);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
Text replace(Evaluator& evaluator, const Text& text, const std::string& from, const Text& to, Integer count);
Text map_case(const Text& text, std::string (*map)(char32_t));
Text to_lower(const Text& text);
Text capitalize(const Text& text);

}  // namespace quire::jinja
