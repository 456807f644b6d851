// Tools as templates take them that insist on members, or on types that are one word.
#include <string>
#include <utility>
#include <vector>

#include "core/base/json/json.h"
#include "core/text/message_fit.h"
#include "core/text/tools/output_parser.h"

namespace quire {

namespace {

void fill(Json& owner, const char* member, const Json& value) {
  if (owner.is_object() && owner.value(member, Json()).is_null()) owner[member] = value;
}

Json plain_schema(const ToolParameter& parameter) {
  std::string type = "string";
  for (const std::string& each : parameter.types) {
    if (each == "null") continue;
    type = each;
    break;
  }
  Json schema = {{"type", type}, {"description", ""}};
  if (type == "array") schema["items"] = plain_schema(parameter.items.empty() ? ToolParameter{} : parameter.items[0]);
  if (type != "object") return schema;
  schema["properties"] = Json::object();
  for (const ToolParameter& member : parameter.members)
    schema["properties"][member.name] = plain_schema(member);
  schema["additionalProperties"] = {{"type", "string"}};
  return schema;
}

Json with_texts_of(Json schema, const Json& given) {
  if (!given.is_object()) return schema;
  for (const char* const member : {"description", "enum"}) {
    const Json value = given.value(member, Json());
    if (!value.is_null()) schema[member] = value;
  }
  return schema;
}

}  // namespace

Json filled_tools(Json tools) {
  for (Json& tool : tools) {
    Json& function = tool["function"];
    fill(function, "description", "");
    fill(function, "parameters", {{"type", "object"}});
    Json& parameters = function["parameters"];
    fill(parameters, "properties", Json::object());
    const auto properties = parameters.find("properties");
    if (properties == parameters.end() || !properties->is_object()) continue;
    for (Json& property : *properties)
      fill(property, "description", "");
  }
  return tools;
}

Json plain_tools(Json tools) {
  const std::vector<ToolSpec> specs = read_tool_specs(tools);
  for (std::size_t i = 0; i < tools.size() && specs.size() == tools.size(); ++i) {
    Json& function = tools[i]["function"];
    fill(function, "description", "");
    const Json given = function.value("parameters", Json::object()).value("properties", Json::object());
    Json parameters = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
    for (const ToolParameter& each : specs[i].parameters) {
      const bool is_given = given.is_object() && given.contains(each.name);
      parameters["properties"][each.name] = with_texts_of(plain_schema(each), is_given ? given[each.name] : Json());
      if (each.required) parameters["required"].push_back(each.name);
    }
    function["parameters"] = std::move(parameters);
  }
  return tools;
}

}  // namespace quire
