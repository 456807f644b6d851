#include "server/api/responses/response_tools.h"

#include <fmt/core.h>

#include <utility>

#include "server/api/conversation/custom_tools.h"

namespace quire {

namespace {

constexpr std::size_t kMaxNamespaceTools = 512;

const Json& shell_schema() {
  static const Json kSchema{
      {"type", "object"},
      {"properties",
       {{"command",
         {{"type", "array"}, {"items", {{"type", "string"}}}, {"description", "The program and its arguments"}}},
        {"working_directory", {{"type", "string"}}},
        {"timeout_ms", {{"type", "integer"}}}}},
      {"required", {"command"}},
      {"additionalProperties", false}};
  return kSchema;
}

class ToolReader {
 public:
  explicit ToolReader(FieldReader& reader) : reader_(reader) {}

  void read(const Json& tools) {
    for (std::size_t i = 0; i < tools.size() && !reader_.error(); ++i) {
      const std::string path = fmt::format("tools[{}]", i);
      if (!reader_.is_object(path, tools[i])) return;
      FieldReader tool(tools[i], path + ".");
      Json echo = read_tool(tool, tools[i]);
      take_error(reader_, tool);
      read_.echo.push_back(std::move(echo));
    }
  }

  ReadResponseTools take() { return std::move(read_); }

 private:
  // Reads a tool and returns the form that the response repeats.
  Json read_tool(FieldReader& tool, const Json& given) {
    const auto type = tool.string("type");
    if (!type) tool.missing("type");
    if (tool.error()) return nullptr;
    if (*type == "function") return read_function(tool, "");
    if (*type == "custom") return read_custom(tool, given, "");
    if (*type == "namespace") return read_namespace(tool, given);
    if (*type == kLocalShell) {
      offer(tool, {ResponseToolKind::kLocalShell, "", std::string(kLocalShell)},
            {{"description", "Runs a command in the user's shell and returns its output"},
             {"parameters", shell_schema()}});
    } else if (tool.has("parameters")) {
      return read_function(tool, "");
    } else {
      // OpenAI's servers run it, or clients do by a protocol that only OpenAI's own models know.
      reader_.warn(fmt::format("{}: a tool of type '{}' is left out: the server runs no tools of its own",
                               tool.path("type"), *type));
    }
    return given;
  }

  // The echo has all members, as OpenAI's has.
  Json read_function(FieldReader& tool, const std::string& name_space) {
    const std::string name = read_name(tool);
    if (tool.boolean("defer_loading", false))
      reader_.warn(fmt::format("{}: all tools are shown to the model", tool.path("defer_loading")));
    tool.refuse_unless("allowed_callers", Json::array({"direct"}), "only the model calls tools");
    const Json* parameters = tool.object("parameters");
    const bool strict = tool.boolean("strict", false);
    Json function = Json::object();
    if (auto description = tool.string("description")) function["description"] = std::move(*description);
    if (parameters != nullptr) function["parameters"] = *parameters;
    Json echo{{"type", "function"}, {"name", name}};
    echo.update(function);
    if (parameters == nullptr) echo["parameters"] = nullptr;
    echo["strict"] = strict;
    if (strict) function["strict"] = true;
    offer(tool, {ResponseToolKind::kFunction, name_space, name}, std::move(function));
    return echo;
  }

  Json read_custom(FieldReader& tool, const Json& given, const std::string& name_space) {
    const std::string name = read_name(tool);
    offer(tool, {ResponseToolKind::kCustom, name_space, name}, custom_function(tool));
    return given;
  }

  Json read_namespace(FieldReader& tool, const Json& given) {
    const std::string name_space = read_name(tool);
    const Json* tools = tool.array("tools");
    if (tools == nullptr) tool.missing("tools");
    if (tools != nullptr && tools->size() > kMaxNamespaceTools) tool.fail("tools", "A namespace has too many tools");
    for (std::size_t i = 0; tools != nullptr && i < tools->size() && !tool.error(); ++i) {
      const std::string name = fmt::format("tools[{}]", i);
      if (!tool.is_object(name, (*tools)[i])) break;
      FieldReader inner((*tools)[i], tool.path(name + "."));
      const auto type = inner.word("type", {"function", "custom"});
      if (!type) inner.missing("type");
      if (!inner.error()) {
        if (*type == "custom") {
          read_custom(inner, (*tools)[i], name_space);
        } else {
          read_function(inner, name_space);
        }
      }
      take_error(tool, inner);
    }
    return given;
  }

  static std::string read_name(FieldReader& tool) {
    const auto name = tool.string("name");
    if (!name) tool.missing("name");
    return name.value_or("");
  }

  void offer(const FieldReader& given, ResponseTool tool, Json function) {
    const std::string name = offered_name(tool.name_space, tool.name);
    Json named{{"name", name}};
    named.update(function);
    read_.chat.push_back({{"type", "function"}, {"function", std::move(named)}});
    read_.paths.push_back(given.own_path());
    read_.tools.insert_or_assign(name, std::move(tool));
  }

  FieldReader& reader_;
  ReadResponseTools read_;
};

// A choice that names a tool has the name beside its type, where chats have it in a member of its own.
Json nested_choice(const Json& named) {
  if (!named.is_object() || !named.contains("name")) {
    const bool is_shell = named.is_object() && named.value("type", Json()) == kLocalShell;
    return is_shell ? Json{{"type", "function"}, {"function", {{"name", kLocalShell}}}} : named;
  }
  const Json type = named.value("type", Json("function"));
  const Json name_space = named.value("namespace", Json(""));
  const bool has_texts = named["name"].is_string() && name_space.is_string();
  const Json name =
      has_texts ? Json(offered_name(name_space.get<std::string>(), named["name"].get<std::string>())) : named["name"];
  return Json{{"type", type == "custom" ? Json("function") : type}, {"function", {{"name", name}}}};
}

}  // namespace

std::string offered_name(std::string_view name_space, std::string_view name) {
  return name_space.empty() ? std::string(name) : fmt::format("{}.{}", name_space, name);
}

Json shell_action(const std::string& arguments) {
  Json action{{"type", "exec"}, {"command", Json::array()}, {"env", Json::object()}};
  const auto given = parse_json(arguments);
  if (!given || !given->is_object()) return action;
  if (const Json command = given->value("command", Json()); command.is_array()) {
    for (const Json& word : command)
      if (word.is_string()) action["command"].push_back(word);
  }
  if (const Json folder = given->value("working_directory", Json()); folder.is_string())
    action["working_directory"] = folder;
  if (const Json time = given->value("timeout_ms", Json()); time.is_number_integer()) action["timeout_ms"] = time;
  return action;
}

Json shell_arguments(const Json& action) {
  Json arguments{{"command", action.value("command", Json::array())}};
  for (const char* name : {"working_directory", "timeout_ms"}) {
    if (action.contains(name) && !action[name].is_null()) arguments[name] = action[name];
  }
  return arguments;
}

ReadResponseTools read_response_tools(FieldReader& reader, const Json& tools) {
  ToolReader tool_reader(reader);
  tool_reader.read(tools);
  return tool_reader.take();
}

Json chat_tool_choice(const Json& choice) {
  if (!choice.is_object() || choice.value("type", Json()) != "allowed_tools") return nested_choice(choice);
  Json allowed{{"mode", choice.value("mode", Json())}, {"tools", Json::array()}};
  const Json tools = choice.value("tools", Json::array());
  for (const Json& tool : tools.is_array() ? tools : Json::array())
    allowed["tools"].push_back(nested_choice(tool));
  return Json{{"type", "allowed_tools"}, {"allowed_tools", std::move(allowed)}};
}

}  // namespace quire
