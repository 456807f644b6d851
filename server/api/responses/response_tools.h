// The tools of a Responses request as the functions that a chat has, and calls of them in the API's own items. Tools
// that a client runs are offered to the model: functions, those of a namespace, custom ones and the local shell. Tools
// that OpenAI's servers run are left out with a warning. Immutable once read; any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "server/api/common/field_reader.h"

namespace quire {

enum class ResponseToolKind { kFunction, kCustom, kLocalShell };

struct ResponseTool {
  ResponseToolKind kind = ResponseToolKind::kFunction;
  std::string name_space = {};  // empty: none
  std::string name = {};        // name within its namespace
};

// By the name under which the model is offered the tool.
using ResponseTools = std::map<std::string, ResponseTool, std::less<>>;

// The tool's name in the prompt, with its namespace if it has one.
std::string offered_name(std::string_view name_space, std::string_view name);
inline constexpr std::string_view kLocalShell = "local_shell";

// The arguments of a call of the local shell as the action of its item, and back.
Json shell_action(const std::string& arguments);
Json shell_arguments(const Json& action);

struct ReadResponseTools {
  Json chat = Json::array();       // in the form of chat completions
  std::vector<std::string> paths;  // places in the body, in the order of `chat`
  Json echo = Json::array();       // in the form that the response repeats
  ResponseTools tools;
};

// Reads the member `tools`. Errors and warnings stay in the reader.
ReadResponseTools read_response_tools(FieldReader& reader, const Json& tools);

// Converts a `tool_choice` that names tools to the form of chat completions.
Json chat_tool_choice(const Json& choice);

}  // namespace quire
