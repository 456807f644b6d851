#include "server/api/conversation/custom_tools.h"

#include <fmt/core.h>

namespace quire {

namespace {

// The grammar's description for the model; empty: the input is any text. The Responses API has the grammar's members
// beside the type, chat completions in a member of their own.
std::string about_input(FieldReader& tool, const Json& format) {
  FieldReader fields(format, tool.path("format."));
  std::string about;
  const auto read = [&about](FieldReader& grammar) {
    const std::string syntax = grammar.word("syntax", {"lark", "regex"}).value_or("");
    about = fmt::format("A text of this grammar ({}):\n{}", syntax, grammar.string("definition").value_or(""));
  };
  if (fields.word("type", {"text", "grammar"}) == "grammar") {
    if (const Json* nested = fields.object("grammar")) {
      FieldReader grammar(*nested, fields.path("grammar."));
      read(grammar);
      take_error(fields, grammar);
    } else {
      read(fields);
    }
    tool.warn(fmt::format("{}: the grammar is shown to the model, not enforced", tool.path("format")));
  }
  take_error(tool, fields);
  return about;
}

}  // namespace

Json custom_function(FieldReader& tool) {
  std::string description = tool.string("description").value_or("");
  Json input{{"type", "string"}};
  if (const Json* format = tool.object("format")) {
    if (std::string about = about_input(tool, *format); !about.empty()) input["description"] = std::move(about);
  }
  return Json{{"description", std::move(description)},
              {"parameters",
               {{"type", "object"},
                {"properties", {{"input", std::move(input)}}},
                {"required", Json::array({"input"})},
                {"additionalProperties", false}}}};
}

Json custom_arguments(const std::string& input) {
  return Json{{"input", input}};
}

std::string custom_input(const std::string& arguments) {
  const auto parsed = parse_json(arguments);
  const bool has_input = parsed && parsed->is_object() && parsed->contains("input") && (*parsed)["input"].is_string();
  return has_input ? (*parsed)["input"].get<std::string>() : arguments;
}

}  // namespace quire
