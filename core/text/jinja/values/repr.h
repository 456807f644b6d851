// Values as text: Python's str() and repr(), json.dumps, and pprint. One thread at a time. Invariant: strings inside
// keep their marks; text added around them (quotes, brackets, digits) is trusted.
#pragma once

#include <optional>
#include <string>

#include "core/text/jinja/values/value.h"

namespace quire::jinja {

class Evaluator;

Text to_text(Evaluator& evaluator, const Value& value);                       // str(value)
Text repr(Evaluator& evaluator, const Value& value, bool sort_keys = false);  // sort_keys: as pprint does

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<Text> indent;  // indentation of a level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
Text dump_json(Evaluator& evaluator, const Value& value, const JsonStyle& style);

}  // namespace quire::jinja
