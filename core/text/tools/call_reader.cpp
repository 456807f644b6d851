#include "core/text/tools/call_reader.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/base/json/json.h"

namespace quire {

std::size_t match_marker(std::string_view text, std::size_t position, const std::vector<std::string_view>& markers) {
  std::size_t longest = 0;
  for (const auto marker : markers) {
    if (marker.size() > longest && text.substr(position).starts_with(marker)) longest = marker.size();
  }
  return longest;
}

bool may_become(std::string_view text, std::size_t position, std::string_view marker) {
  const auto rest = text.substr(position);
  return rest.size() < marker.size() && marker.starts_with(rest);
}

bool may_become_any(std::string_view text, std::size_t position, const std::vector<std::string_view>& markers) {
  return std::any_of(markers.begin(), markers.end(),
                     [&](std::string_view marker) { return may_become(text, position, marker); });
}

std::size_t match_end(std::string_view text, std::size_t position, const CallContext& context) {
  const bool may_open = !context.final && may_become_any(text, position, context.format.starts);
  return may_open ? 0 : match_marker(text, position, context.format.ends);
}

std::size_t held_back(std::string_view text, const std::vector<std::string_view>& markers) {
  std::size_t longest = 0;
  for (const auto marker : markers)
    longest = std::max(longest, marker.size());
  for (std::size_t length = std::min(longest, text.size()); length > 0; --length) {
    if (may_become_any(text, text.size() - length, markers)) return length;
  }
  return 0;
}

CallReading read_calls(std::string_view text, const CallContext& context) {
  switch (context.format.syntax) {
    case CallSyntax::kJson: return read_json_calls(text, context);
    case CallSyntax::kNamedJson: return read_named_calls(text, context);
    case CallSyntax::kPythonic: return read_pythonic_calls(text, context);
    case CallSyntax::kTagged: return read_tagged_calls(text, context);
    case CallSyntax::kBraced: return read_braced_calls(text, context);
    case CallSyntax::kNestedTags: return read_nested_tags(text, context);
    default: return {ScanStatus::kMalformed, 0, 0, {}, false, true, false};
  }
}

const ToolSpec* find_tool(const std::vector<ToolSpec>& tools, std::string_view name) {
  const auto found =
      std::find_if(tools.begin(), tools.end(), [name](const ToolSpec& tool) { return tool.name == name; });
  return found == tools.end() ? nullptr : &*found;
}

const ToolParameter* find_parameter(const ToolSpec* tool, std::string_view name) {
  if (tool == nullptr) return nullptr;
  const auto found = std::find_if(tool->parameters.begin(), tool->parameters.end(),
                                  [name](const ToolParameter& p) { return p.name == name; });
  return found == tool->parameters.end() ? nullptr : &*found;
}

namespace {

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(skip_white_space(text, 0));
  while (!text.empty() && skip_white_space(text, text.size() - 1) == text.size())
    text.remove_suffix(1);
  return text;
}

bool is_whole(const SortedJson& value) {
  constexpr double kLimit = 9e15;  // doubles above it do not distinguish integers
  if (!value.is_number_float()) return value.is_number_integer();
  const double number = value.get<double>();
  return std::fabs(number) < kLimit && number == std::floor(number);
}

bool has_type(const SortedJson& value, const std::string& type) {
  if (type == "integer") return is_whole(value);
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  return type == "null" && value.is_null();
}

// JSON Schema's name of a type that tools also spell as programming languages do.
std::string schema_type(const std::string& type) {
  static constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
      {"int", "integer"}, {"uint", "integer"},   {"long", "integer"},  {"short", "integer"}, {"unsigned", "integer"},
      {"num", "number"},  {"float", "number"},   {"double", "number"}, {"bool", "boolean"},  {"str", "string"},
      {"text", "string"}, {"varchar", "string"}, {"char", "string"},   {"enum", "string"},   {"dict", "object"},
      {"map", "object"},  {"list", "array"},     {"arr", "array"},
  };
  for (const auto& [prefix, name] : kPrefixes) {
    if (type.starts_with(prefix)) return std::string(name);
  }
  return type;
}

}  // namespace

std::string coerce_value(std::string_view text, const std::vector<std::string>& types, JsonSpacing spacing) {
  const auto is_string_type = [](const std::string& type) { return type == "string"; };
  if (!types.empty() && std::all_of(types.begin(), types.end(), is_string_type)) return quote_json(text);
  std::string written(trimmed(text));
  auto value = SortedJson::parse(written, nullptr, false);
  if (value.is_discarded()) {
    // Models also write True, lists and dicts as Python does; text in parentheses is rather text than a tuple.
    const auto json = written.starts_with('(') ? std::nullopt : python_literal_to_json(written, spacing);
    if (!json) return quote_json(text);
    written = *json;
    value = SortedJson::parse(written, nullptr, false);
  }
  if (types.empty()) return value.is_structured() ? scan_json(written, 0, spacing).text : quote_json(text);
  for (const auto& type : types) {
    if (!has_type(value, type)) continue;
    if (value.is_number_float() && is_whole(value)) return std::to_string(static_cast<long long>(value.get<double>()));
    return scan_json(written, 0, spacing).text;
  }
  return quote_json(text);
}

std::string json_value(std::string_view text, JsonSpacing spacing) {
  const std::string written(trimmed(text));
  const JsonScan scan = scan_json(written, 0, spacing);
  if (scan.status == ScanStatus::kComplete && scan.end == written.size()) return scan.text;
  return python_literal_to_json(written, spacing).value_or(quote_json(text));
}

namespace {

// The schema that a reference inside the tool's own schema means; null where it leads elsewhere.
const Json* referred(const Json& root, const std::string& reference) {
  if (!reference.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer pointer(reference.substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

// Keywords that only values of one type have.
constexpr std::pair<const char*, const char*> kTypicalKeywords[] = {{"properties", "object"},
                                                                    {"additionalProperties", "object"},
                                                                    {"patternProperties", "object"},
                                                                    {"required", "object"},
                                                                    {"items", "array"},
                                                                    {"prefixItems", "array"},
                                                                    {"minItems", "array"},
                                                                    {"maxItems", "array"},
                                                                    {"minimum", "number"},
                                                                    {"maximum", "number"},
                                                                    {"exclusiveMinimum", "number"},
                                                                    {"exclusiveMaximum", "number"},
                                                                    {"multipleOf", "number"},
                                                                    {"pattern", "string"},
                                                                    {"minLength", "string"},
                                                                    {"maxLength", "string"},
                                                                    {"format", "string"}};

const char* type_of(const Json& value) {
  if (value.is_number()) return "number";
  if (value.is_boolean()) return "boolean";
  if (value.is_null()) return "null";
  if (value.is_object()) return "object";
  return value.is_array() ? "array" : "string";
}

void add_types(const Json& root, const Json& schema, std::vector<std::string>& types, int depth) {
  const auto add = [&types](const std::string& written) {
    const std::string type = schema_type(written);
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  };
  if (!schema.is_object() || depth > 8) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) add(type->get<std::string>());
    if (type->is_array()) {
      for (const auto& one : *type) {
        if (one.is_string()) add(one.get<std::string>());
      }
    }
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto parts = schema.find(key);
    if (parts == schema.end() || !parts->is_array()) continue;
    for (const auto& part : *parts)
      add_types(root, part, types, depth + 1);
  }
  if (const auto reference = schema.find("$ref"); reference != schema.end() && reference->is_string()) {
    const Json* meant = referred(root, reference->get<std::string>());
    if (meant != nullptr) add_types(root, *meant, types, depth + 1);
  }
  // OpenAPI's word.
  if (!types.empty() && schema.value("nullable", Json()) == true) add("null");
  if (!types.empty()) return;
  if (const auto choices = schema.find("enum"); choices != schema.end() && choices->is_array()) {
    for (const auto& choice : *choices)
      add(type_of(choice));
  }
  if (const auto only = schema.find("const"); only != schema.end()) add(type_of(*only));
  if (!types.empty()) return;
  for (const auto& [keyword, type] : kTypicalKeywords) {
    if (schema.contains(keyword)) add(type);
  }
}

// The members of all properties of an object's schema, those behind references and parts included.
struct PropertyReader {
  const Json& root;
  int num_left = 2000;  // a schema that refers to itself has no end

  ToolParameter parameter(const std::string& name, const Json& schema, int depth) {
    ToolParameter read{name, {}, false};
    add_types(root, schema, read.types, 0);
    if (depth > kMaxLevels) return read;
    add_members(schema, read.members, depth + 1);
    add_items(schema, read.items, depth + 1);
    return read;
  }

  void add_items(const Json& schema, std::vector<ToolParameter>& items, int depth);
  void add_members(const Json& schema, std::vector<ToolParameter>& members, int depth);

  static constexpr int kMaxLevels = 8;
};

template <class Visit>
void for_each_part(const Json& root, const Json& schema, const Visit& visit) {
  for (const char* key : {"allOf", "anyOf", "oneOf"}) {
    const auto parts = schema.find(key);
    if (parts == schema.end() || !parts->is_array()) continue;
    for (const auto& part : *parts)
      visit(part);
  }
  if (const auto reference = schema.find("$ref"); reference != schema.end() && reference->is_string()) {
    const Json* meant = referred(root, reference->get<std::string>());
    if (meant != nullptr) visit(*meant);
  }
}

void PropertyReader::add_items(const Json& schema, std::vector<ToolParameter>& items, int depth) {
  if (!schema.is_object() || depth > kMaxLevels || !items.empty() || --num_left < 0) return;
  if (const auto item = schema.find("items"); item != schema.end() && item->is_object())
    return items.push_back(parameter("", *item, depth));
  for_each_part(root, schema, [&](const Json& part) { add_items(part, items, depth + 1); });
}

void PropertyReader::add_members(const Json& schema, std::vector<ToolParameter>& members, int depth) {
  if (!schema.is_object() || depth > kMaxLevels) return;
  if (const auto properties = schema.find("properties"); properties != schema.end() && properties->is_object()) {
    for (const auto& [name, property] : properties->items()) {
      const auto same = [&](const ToolParameter& each) { return each.name == name; };
      if (std::any_of(members.begin(), members.end(), same)) continue;
      if (depth > 0 && --num_left < 0) return;
      members.push_back(parameter(name, property, depth));
    }
  }
  for_each_part(root, schema, [&](const Json& part) { add_members(part, members, depth + 1); });
}

ToolSpec read_spec(const Json& function) {
  ToolSpec spec;
  if (const auto name = function.find("name"); name != function.end() && name->is_string())
    spec.name = name->get<std::string>();
  const auto schema = function.find("parameters");
  if (schema == function.end() || !schema->is_object()) return spec;
  PropertyReader{*schema}.add_members(*schema, spec.parameters, 0);
  if (const auto required = schema->find("required"); required != schema->end() && required->is_array()) {
    for (auto& parameter : spec.parameters) {
      parameter.required = std::find(required->begin(), required->end(), Json(parameter.name)) != required->end();
    }
  }
  return spec;
}

}  // namespace

std::vector<ToolSpec> read_tool_specs(const Json& tools) {
  std::vector<ToolSpec> specs;
  if (!tools.is_array()) return specs;
  for (const auto& tool : tools) {
    if (!tool.is_object()) continue;
    const auto function = tool.find("function");
    specs.push_back(read_spec(function != tool.end() && function->is_object() ? *function : tool));
  }
  return specs;
}

void ParsedOutput::apply(const std::vector<OutputDelta>& deltas) {
  for (const OutputDelta& delta : deltas)
    apply(delta);
}

void ParsedOutput::apply(const OutputDelta& delta) {
  content += delta.content;
  reasoning += delta.reasoning;
  for (const auto& call : delta.tool_calls) {
    if (call.index >= tool_calls.size()) tool_calls.resize(call.index + 1);
    auto& target = tool_calls[call.index];
    if (!call.id.empty()) target.id = call.id;
    if (!call.name.empty()) target.name = call.name;
    target.arguments += call.arguments;
  }
}

}  // namespace quire
