#include "tests/unit/grammar/support/validator.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace quire::test {

namespace {

using Json = nlohmann::json;

bool is_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();  // constrained text writes it in digits alone
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "array" ? value.is_array() : value.is_object();
}

std::size_t num_characters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

bool scalar_rules(const Json& value, const Json& schema) {
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    const bool any = type.is_string()
                         ? is_type(value, type)
                         : std::any_of(type.begin(), type.end(), [&](const Json& t) { return is_type(value, t); });
    if (!any) return false;
  }
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum") && std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
    return false;
  if (value.is_number()) {
    const double number = value;
    if (number < schema.value("minimum", number) || number > schema.value("maximum", number)) return false;
    if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>()) return false;
    if (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"].get<double>()) return false;
    if (schema.contains("multipleOf") && std::fmod(number, schema["multipleOf"].get<double>()) != 0) return false;
  }
  if (value.is_string()) {
    const std::string text = value;
    const std::size_t length = num_characters(text);
    if (length < schema.value("minLength", std::size_t{0}) || length > schema.value("maxLength", length)) return false;
    if (schema.contains("pattern") && !matches(text, schema["pattern"])) return false;
  }
  return true;
}

bool array_rules(const Json& value, const Json& schema, const Json& root) {
  const std::size_t size = value.size();
  if (size < schema.value("minItems", std::size_t{0}) || size > schema.value("maxItems", size)) return false;
  const Json prefix = schema.value("prefixItems", Json::array());
  for (std::size_t i = 0; i < size; ++i) {
    if (i < prefix.size() ? !validates(value[i], prefix[i], root)
                          : schema.contains("items") && !validates(value[i], schema["items"], root)) {
      return false;
    }
  }
  if (schema.value("uniqueItems", false)) {
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (value[i] == value[k]) return false;
      }
    }
  }
  if (!schema.contains("contains")) return true;
  const auto found = static_cast<std::size_t>(std::count_if(
      value.begin(), value.end(), [&](const Json& item) { return validates(item, schema["contains"], root); }));
  return found >= schema.value("minContains", std::size_t{1}) && found <= schema.value("maxContains", size);
}

bool object_rules(const Json& value, const Json& schema, const Json& root) {
  const std::size_t size = value.size();
  if (size < schema.value("minProperties", std::size_t{0}) || size > schema.value("maxProperties", size)) return false;
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  const Json properties = schema.value("properties", Json::object());
  const Json patterns = schema.value("patternProperties", Json::object());
  for (const auto& [name, item] : value.items()) {
    bool known = properties.contains(name);
    if (known && !validates(item, properties[name], root)) return false;
    for (const auto& [pattern, sub] : patterns.items()) {
      if (!matches(name, pattern)) continue;
      known = true;
      if (!validates(item, sub, root)) return false;
    }
    if (!known && schema.contains("additionalProperties") && !validates(item, schema["additionalProperties"], root))
      return false;
    if (schema.contains("propertyNames") && !validates(name, schema["propertyNames"], root)) return false;
  }
  const Json dependent = schema.value("dependentRequired", Json::object());
  for (const auto& [name, needed] : dependent.items()) {
    if (!value.contains(name)) continue;
    if (std::any_of(needed.begin(), needed.end(),
                    [&](const Json& other) { return !value.contains(other.get<std::string>()); }))
      return false;
  }
  return true;
}

}  // namespace

bool validates(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  const auto holds = [&](const Json& part) { return validates(value, part, root); };
  if (!scalar_rules(value, schema)) return false;
  if (value.is_array() && !array_rules(value, schema, root)) return false;
  if (value.is_object() && !object_rules(value, schema, root)) return false;
  if (schema.contains("$ref") && !holds(root.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1)))))
    return false;
  const auto list = [&](const char* name) { return schema.value(name, Json::array()); };
  const Json all = list("allOf");
  const Json any = list("anyOf");
  const Json one = list("oneOf");
  if (!std::all_of(all.begin(), all.end(), holds)) return false;
  if (!any.empty() && !std::any_of(any.begin(), any.end(), holds)) return false;
  if (!one.empty() && std::count_if(one.begin(), one.end(), holds) != 1) return false;
  if (schema.contains("not") && holds(schema["not"])) return false;
  if (!schema.contains("if")) return true;
  return holds(schema.value(holds(schema["if"]) ? "then" : "else", Json(true)));
}

}  // namespace quire::test
