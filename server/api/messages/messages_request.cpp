#include "server/api/messages/messages_request.h"

#include <fmt/core.h>

#include <map>

#include "server/api/conversation/prepared_chat.h"
#include "server/api/fields/messages.h"

namespace quire {

namespace {

void check_metadata(FieldReader& reader) {
  if (const Json* metadata = reader.object(fields::messages::kMetadata)) {
    FieldReader inner(*metadata, "metadata.");
    inner.string("user_id");
    take_error(reader, inner);
  }
}

void read_sampling(FieldReader& reader, const ServedModel& model, MessagesRequest& request) {
  reader.integer(fields::messages::kMaxTokens);
  if (!reader.has(fields::messages::kMaxTokens)) require_field(reader, fields::messages::kMaxTokens);
  reader.number(fields::messages::kTemperature);
  reader.refuse_from(fields::kForeignMessageFields);
  request.fields = read_generation_fields(reader, model);
  if (auto stop = reader.strings(fields::messages::kStopSequences)) request.fields.stop = std::move(*stop);
  check_stops(reader, fields::messages::kStopSequences, request.fields.stop);
}

void read_thinking(FieldReader& reader, MessagesRequest& request) {
  Json& kwargs = request.prompt.template_kwargs;
  kwargs["enable_thinking"] = false;
  const Json* thinking = reader.object(fields::messages::kThinking);
  if (thinking == nullptr) return;
  FieldReader inner(*thinking, "thinking.");
  const auto type = inner.word("type", {"enabled", "disabled", "adaptive"});
  if (!type) require_field(inner, "type");
  kwargs["enable_thinking"] = type != "disabled";
  request.shows_thinking = inner.word("display", {"summarized", "omitted"}) != "omitted";
  if (type == "enabled") {
    const auto budget = inner.integer("budget_tokens", 1, kMaxInt32);
    if (!budget) require_field(inner, "budget_tokens");
    if (budget && request.fields.max_tokens && *budget >= *request.fields.max_tokens)
      inner.fail("budget_tokens", "'thinking.budget_tokens' must be less than 'max_tokens'");
    if (budget) request.prompt.thinking_budget = static_cast<std::int32_t>(*budget);
  }
  take_error(reader, inner);
}

// Reads the schema that the text must fit, from the member `name` of `owner`, which may be the body itself.
void read_format(FieldReader& owner, FieldName name, FieldReader& reader, const ServedModel& model,
                 MessagesRequest& request) {
  const Json* format = owner.object(name);
  if (format == nullptr) return;
  const std::string path = owner.path(name);
  FieldReader members(*format, path + ".");
  if (!members.word("type", {"json_schema"})) require_field(members, "type");
  const Json* schema = members.object("schema");
  if (schema == nullptr) require_field(members, "schema");
  take_error(reader, members);
  if (!members.error() && request.grammar != nullptr)
    reader.fail(path, fmt::format("'{}' and another field both constrain the text", path));
  if (reader.error() || owner.error()) return;
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kJsonSchema;
  spec.text = dump_json(*schema);
  request.grammar = compile_constraint(reader, model, path + ".schema", spec);
}

void read_output_config(FieldReader& reader, const ServedModel& model, MessagesRequest& request) {
  request.grammar = read_constraint(reader, model);
  read_format(reader, fields::messages::kOutputFormat, reader, model,
              request);  // the first name of output_config.format
  const Json* config = reader.object(fields::messages::kOutputConfig);
  if (config == nullptr) return;
  FieldReader inner(*config, "output_config.");
  if (auto effort = inner.word("effort", {"low", "medium", "high", "xhigh", "max"}))
    request.prompt.template_kwargs["reasoning_effort"] = std::move(*effort);
  read_format(inner, "format", reader, model, request);
  take_error(reader, inner);
}

// Converts a tool to the form of OpenAI's chats; null if it is left out.
Json read_anthropic_tool(FieldReader& tool) {
  const auto type = tool.string("type");
  // A tool without a schema is run by Anthropic's servers, or known to its own models only.
  if (type && type != "custom" && !tool.has("input_schema")) {
    tool.warn(fmt::format("{}: a tool of type '{}' is left out: the server runs no tools of its own", tool.path("type"),
                          *type));
    return nullptr;
  }
  const auto name = tool.string("name");
  if (!name) require_field(tool, "name");
  const Json* schema = tool.object("input_schema");
  if (schema == nullptr) require_field(tool, "input_schema");
  Json function{{"name", name.value_or("")}};
  if (auto description = tool.string("description")) function["description"] = std::move(*description);
  if (schema != nullptr) function["parameters"] = *schema;
  if (const auto strict = tool.boolean("strict")) function["strict"] = *strict;
  if (tool.boolean("defer_loading", false))
    tool.warn(fmt::format("{}: all tools are shown to the model", tool.path("defer_loading")));
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

void read_anthropic_choice(FieldReader& reader, Json& chat) {
  const Json* choice = reader.object(fields::messages::kToolChoice);
  if (choice == nullptr) return;
  FieldReader inner(*choice, "tool_choice.");
  const auto type = inner.word("type", {"auto", "any", "tool", "none"});
  if (!type) require_field(inner, "type");
  if (inner.boolean("disable_parallel_tool_use", false)) chat["parallel_tool_calls"] = false;
  if (type == "tool") {
    const auto name = inner.string("name");
    if (!name) require_field(inner, "name");
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", name.value_or("")}}}};
  } else {
    chat["tool_choice"] = type == "any" ? "required" : type.value_or("");
  }
  take_error(reader, inner);
}

const Json& name_of(const Json& tool) {
  return tool["function"]["name"];
}

// Paths of tools in the body, by their names; of two with one name the last one's.
using ToolPaths = std::map<std::string, std::string>;

void note_tool(Json tool, const FieldReader& given, Json& tools, ToolPaths& paths) {
  paths.insert_or_assign(name_of(tool).get<std::string>(), given.own_path());
  tools.push_back(std::move(tool));
}

void remove_tool(Json& tools, const Json& name) {
  for (std::size_t i = tools.size(); i-- > 0;) {
    if (name_of(tools[i]) == name) tools.erase(i);
  }
}

// Applies a block that adds or removes a tool; `known`: all tools defined so far.
void change_tools(FieldReader& block, bool adds, Json& known, Json& tools, ToolPaths& paths) {
  const Json* given = block.object("tool");
  if (given == nullptr) return require_field(block, "tool");
  FieldReader tool(*given, block.path("tool."));
  Json name = tool.string("name").value_or("");
  if (const Json* definition = adds ? tool.object("definition") : nullptr) {
    FieldReader inner(*definition, tool.path("definition."));
    Json offered = read_anthropic_tool(inner);
    take_error(tool, inner);
    name = offered.is_null() ? Json("") : name_of(offered);
    remove_tool(known, name);
    if (!offered.is_null()) note_tool(std::move(offered), inner, known, paths);
  }
  take_error(block, tool);
  remove_tool(tools, name);
  for (const Json& each : known) {
    if (adds && name_of(each) == name) tools.push_back(each);
  }
}

// Applies the system's messages that add or remove tools.
void read_tool_changes(FieldReader& reader, Json& chat, ToolPaths& paths) {
  const Json* messages = reader.array(fields::messages::kMessages);
  Json known = chat.value("tools", Json::array());
  Json tools = known;
  for (std::size_t i = 0; messages != nullptr && i < messages->size(); ++i) {
    const Json content = (*messages)[i].is_object() ? (*messages)[i].value("content", Json()) : Json();
    for (std::size_t j = 0; content.is_array() && j < content.size() && !reader.error(); ++j) {
      const Json type = content[j].is_object() ? content[j].value("type", Json()) : Json();
      if (type != "tool_addition" && type != "tool_removal") continue;
      FieldReader block(content[j], fmt::format("messages.{}.content.{}.", i, j));
      change_tools(block, type == "tool_addition", known, tools, paths);
      take_error(reader, block);
    }
  }
  if (!known.empty()) chat["tools"] = std::move(tools);
}

// Reads the tools, and converts them to OpenAI's form.
void read_tools(FieldReader& reader, MessagesRequest& request) {
  Json chat = Json::object();
  ToolPaths paths;
  if (const Json* tools = reader.array(fields::messages::kTools)) {
    chat["tools"] = Json::array();
    for (std::size_t i = 0; i < tools->size() && !reader.error(); ++i) {
      const std::string path = fmt::format("tools.{}", i);
      if (!(*tools)[i].is_object()) return reader.fail(path, path + ": Input should be an object", "invalid_type");
      FieldReader tool((*tools)[i], path + ".");
      Json offered = read_anthropic_tool(tool);
      if (!offered.is_null()) note_tool(std::move(offered), tool, chat["tools"], paths);
      take_error(reader, tool);
    }
  }
  read_tool_changes(reader, chat, paths);
  read_anthropic_choice(reader, chat);
  if (reader.error()) return;
  std::vector<std::string> in_order;
  for (const Json& tool : chat.value("tools", Json::array()))
    in_order.push_back(paths[name_of(tool).get<std::string>()]);
  request.tools = read_translated_tools(reader, chat, in_order);
}

}  // namespace

MessagesRequest read_messages_request(FieldReader& reader, const ServedModel& model, std::shared_ptr<MediaList> media,
                                      bool counts_only) {
  MessagesRequest request;
  if (!counts_only) read_sampling(reader, model, request);
  request.prompt = read_anthropic_prompt(reader, std::move(media));
  read_thinking(reader, request);
  read_tools(reader, request);
  read_output_config(reader, model, request);
  reader.refuse_from(fields::kMessageFields);
  reader.check_accepted(fields::kMessageFields);
  check_metadata(reader);
  return request;
}

}  // namespace quire
