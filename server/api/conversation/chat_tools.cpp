#include "server/api/conversation/chat_tools.h"
#include "server/api/conversation/call_grammar.h"
#include "server/api/conversation/custom_tools.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "core/grammar/compiler.h"
#include "server/api/fields/chat.h"

namespace quire {

namespace {

constexpr std::size_t kMaxTools = 512;

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= 256 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// A tool without a schema that has a type of its own is one that another server runs.
bool is_of_server(const Json& tool) {
  const Json type = tool.is_object() ? tool.value("type", Json()) : Json();
  if (!type.is_string() || type == "function" || type == "custom") return false;
  const Json function = tool.value("function", Json());
  return !function.is_object() || !function.contains("parameters");
}

// Checks one entry of `tools`; returns its name and whether it is strict.
std::pair<std::string, bool> read_tool(FieldReader& reader, const Json& tool, const std::string& path) {
  if (!reader.is_object(path, tool)) return {};
  FieldReader fields(tool, path + ".");
  if (!fields.word("type", {"function"})) fields.missing("type");
  const Json* function = fields.object("function");
  if (function == nullptr) fields.missing("function");
  take_error(reader, fields);
  if (reader.error()) return {};
  FieldReader inner(*function, path + ".function.");
  const std::string name = inner.string("name").value_or("");
  if (!is_tool_name(name)) {
    inner.fail("name", fmt::format("'{}.function.name' must be letters, digits, '_', '-' and '.'", path));
  }
  inner.string("description");
  inner.object("parameters");
  const bool strict = inner.boolean("strict", false);
  take_error(reader, inner);
  return {name, strict};
}

// A custom tool as the function that represents it; other tools unchanged.
Json as_function(FieldReader& reader, const Json& tool, const std::string& path) {
  const Json type = tool.is_object() ? tool.value("type", Json("function")) : Json();
  if (type.is_string() && type != "custom" && tool.contains("function")) {
    Json function{{"type", "function"}};
    function.update(tool);
    function["type"] = "function";
    return function;
  }
  if (type != "custom") return tool;
  FieldReader fields(tool, path + ".");
  const Json* custom = fields.object("custom");
  if (custom == nullptr) fields.missing("custom");
  take_error(reader, fields);
  if (reader.error()) return tool;
  FieldReader inner(*custom, path + ".custom.");
  Json function{{"name", inner.string("name").value_or("")}};
  function.update(custom_function(inner));
  take_error(reader, inner);
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

// The name in {"type":"function","function":{"name":...}}, or of a custom tool likewise.
std::optional<std::string> named_function(const Json& choice) {
  const Json type = choice.is_object() ? choice.value("type", Json("function")) : Json();
  if (type != "function" && type != "custom") return std::nullopt;
  const Json function = choice.value(type.get<std::string>(), Json());
  if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) return std::nullopt;
  return function["name"].get<std::string>();
}

// {"mode":..., "tools":[...]}: the model may call these only, or must call one of them.
std::optional<std::set<std::string>> read_allowed(FieldReader& reader, const Json& allowed, ToolFields& fields) {
  const Json mode = allowed.is_object() ? allowed.value("mode", Json()) : Json();
  const Json tools = allowed.is_object() ? allowed.value("tools", Json()) : Json();
  std::set<std::string> names;
  for (const Json& tool : tools.is_array() ? tools : Json::array()) {
    const auto name = named_function(tool);
    if (!name) reader.fail(fields::chat::kToolChoice, "'tool_choice' allows something that is not a function");
    names.insert(name.value_or(""));
  }
  if (names.empty() || (mode != "auto" && mode != "required")) {
    reader.fail(fields::chat::kToolChoice, "Allowed tools need a 'mode', 'auto' or 'required', and a list of 'tools'");
  }
  if (mode == "required") fields.choice = ToolFields::Choice::kRequired;
  return names;
}

// The tools that the choice names; nullopt: any.
std::optional<std::set<std::string>> read_choice(FieldReader& reader, ToolFields& fields) {
  const Json* choice = reader.find(fields::chat::kToolChoice);
  if (choice == nullptr) return std::nullopt;
  const Json word = choice->is_object() && choice->size() == 1 ? choice->value("type", Json()) : *choice;
  if (word == "none" || word == "auto" || word == "required" || word == "any") {
    if (word == "none") fields.choice = ToolFields::Choice::kNone;
    if (word == "required" || word == "any") fields.choice = ToolFields::Choice::kRequired;
    return std::nullopt;
  }
  if (choice->is_string()) {
    reader.word(fields::chat::kToolChoice, {"none", "auto", "required"});
    return std::nullopt;
  }
  if (choice->is_object() && choice->value("type", Json()) == "allowed_tools") {
    return read_allowed(reader, choice->value("allowed_tools", Json()), fields);
  }
  const auto name = named_function(*choice);
  if (!name) {
    reader.fail(fields::chat::kToolChoice, "'tool_choice' must be 'none', 'auto', 'required', or name a function");
    return std::nullopt;
  }
  fields.choice = ToolFields::Choice::kRequired;
  return std::set<std::string>{*name};
}

const Json& function_of(const Json& tool) {
  return tool["function"];
}

std::string schema_of(const Json& tool) {
  const Json& function = function_of(tool);
  const bool has = function.contains("parameters") && !function["parameters"].is_null();
  return has ? dump_json(function["parameters"]) : R"({"type":"object","properties":{},"additionalProperties":false})";
}

// `functions` is the older form of `tools`: it is read as tools, and errors name its own fields.
ToolFields read_functions(FieldReader& reader) {
  for (const fields::Field& row : {fields::chat::kTools, fields::chat::kToolChoice}) {
    if (reader.has(row)) reader.fail(row, fmt::format("'{}' and 'functions' exclude each other", row.name));
  }
  Json chat{{"parallel_tool_calls", false}};
  if (const Json* functions = reader.array(fields::chat::kFunctions)) {
    chat["tools"] = Json::array();
    for (const Json& function : *functions)
      chat["tools"].push_back({{"type", "function"}, {"function", function}});
  }
  if (const Json* choice = reader.find(fields::chat::kFunctionCall)) {
    chat["tool_choice"] = choice->is_object() ? Json{{"type", "function"}, {"function", *choice}} : *choice;
  }
  if (reader.error()) return {};
  FieldReader translated(chat);
  ToolFields fields = read_tool_fields(translated);
  fields.as_functions = true;
  if (!translated.error()) return fields;
  Error error = *translated.error();
  for (std::string* text : {&error.param, &error.message}) {
    for (const auto& [tools_word, word] : {std::pair{"tools[", "functions["},
                                           {"].function", "]"},
                                           {"tool_choice", "function_call"},
                                           {"'tools'", "'functions'"}}) {
      const std::size_t at = text->find(tools_word);
      if (at != std::string::npos) text->replace(at, std::string_view(tools_word).size(), word);
    }
  }
  reader.fail(error.param, error.message, error.code);
  return fields;
}

bool is_strict(const Json& tool) {
  return function_of(tool).value("strict", Json()) == true;
}

// The tools with their calls' constraints: the schema if it is enforced, else any object.
std::vector<CalledTool> called_tools(const ToolFields& fields) {
  std::vector<CalledTool> tools;
  const bool required = fields.choice == ToolFields::Choice::kRequired;
  for (const Json& tool : fields.tools) {
    CalledTool called{function_of(tool)["name"].get<std::string>()};
    called.exact = is_strict(tool);
    if (called.exact || required) called.schema = schema_of(tool);
    tools.push_back(std::move(called));
  }
  return tools;
}

}  // namespace

ToolFields read_tool_fields(FieldReader& reader) {
  if (reader.has(fields::chat::kFunctions) || reader.has(fields::chat::kFunctionCall)) return read_functions(reader);
  ToolFields fields;
  fields.parallel = reader.boolean(fields::chat::kParallelToolCalls, true);
  const auto allowed = read_choice(reader, fields);
  const Json* tools = reader.array(fields::chat::kTools);
  if (tools == nullptr || tools->empty()) {
    if (fields.choice == ToolFields::Choice::kRequired || allowed)
      reader.fail(fields::chat::kToolChoice, "'tool_choice' needs 'tools'");
    return fields;
  }
  if (tools->size() > kMaxTools)
    reader.fail(fields::chat::kTools, fmt::format("'tools' holds more than {} tools", kMaxTools));
  fields.tools = Json::array();
  std::set<std::string> names;
  bool any_strict = false;
  std::size_t num_read = 0;
  for (const Json& tool : *tools) {
    const std::string path = fmt::format("tools[{}]", num_read++);
    if (is_of_server(tool)) {
      reader.warn(fmt::format("{}.type: a tool of type '{}' is left out: the server runs no tools of its own", path,
                              tool["type"].get<std::string>()));
      continue;
    }
    Json offered = as_function(reader, tool, path);
    if (reader.error()) return fields;
    const auto [name, strict] = read_tool(reader, offered, path);
    if (reader.error()) return fields;
    if (!names.insert(name).second) {
      reader.fail(path + ".function.name", fmt::format("Two tools are called '{}'", name));
      return fields;
    }
    if (allowed && allowed->count(name) == 0) continue;
    any_strict = any_strict || strict;
    fields.tools.push_back(std::move(offered));
  }
  for (const std::string& name : allowed.value_or(std::set<std::string>{})) {
    if (names.count(name) != 0) continue;
    reader.fail(fields::chat::kToolChoice, fmt::format("'tool_choice' names '{}', which is not in 'tools'", name));
  }
  fields.constrained = fields.choice == ToolFields::Choice::kRequired || any_strict;
  if (fields.tools.empty() && fields.choice == ToolFields::Choice::kRequired)
    reader.fail(fields::chat::kToolChoice, "'tool_choice' needs 'tools' that the client runs");
  if (fields.choice == ToolFields::Choice::kNone || fields.tools.empty()) {
    fields.tools = nullptr;
    fields.constrained = false;
  }
  return fields;
}

ToolFields read_translated_tools(FieldReader& reader, const Json& chat, const std::vector<std::string>& paths) {
  FieldReader translated(chat);
  ToolFields fields = read_tool_fields(translated);
  if (!translated.error()) {
    take_error(reader, translated);
    return fields;
  }
  constexpr std::string_view kFunction = ".function";
  Error error = *translated.error();
  for (std::string* text : {&error.param, &error.message}) {
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const std::string path = fmt::format("tools[{}]", i);
      const std::size_t at = text->find(path);
      if (at == std::string::npos) continue;
      const bool is_inner = text->compare(at + path.size(), kFunction.size(), kFunction) == 0;
      text->replace(at, path.size() + (is_inner ? kFunction.size() : 0), paths[i]);
      break;
    }
  }
  reader.fail(std::move(error));
  return fields;
}

const ToolFormat& call_format(const ServedModel& model, const ToolFields& fields) {
  static const ToolFormat kGeneric = detect_tool_format("");
  return fields.constrained && model.tool_format.syntax == CallSyntax::kNone ? kGeneric : model.tool_format;
}

std::shared_ptr<const Grammar> tool_constraint(FieldReader& reader, const ServedModel& model, const ToolFields& fields,
                                               const TextConstraint* answer) {
  if (!fields.offered() || reader.error()) return nullptr;
  const bool required = fields.choice == ToolFields::Choice::kRequired;
  auto spec = call_grammar_spec(call_format(model, fields), called_tools(fields), fields.parallel);
  if (!spec) return nullptr;
  spec->required = required;
  spec->free_text = !required && answer == nullptr;
  if (answer != nullptr && !required) spec->answer = std::make_shared<const GrammarSpec>(answer->spec);
  if (fields.constrained || answer != nullptr) {
    const auto constraint = compile_constraint(reader, model, "tools", *std::move(spec));
    return constraint == nullptr ? nullptr : constraint->grammar;
  }
  // With too many tools for a grammar, calls that only need the right form are free.
  if (model.grammar_compiler == nullptr) return nullptr;
  auto grammar = model.grammar_compiler->compile(*spec, reader.limit());
  if (grammar) return *grammar;
  if (grammar.error().kind != ErrorKind::kInvalidRequest) reader.fail(std::move(grammar.error()));
  return nullptr;
}

}  // namespace quire
