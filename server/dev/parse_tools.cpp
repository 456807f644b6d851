#include "server/dev/commands.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/json/json.h"
#include "core/text/chat_template.h"
#include "core/text/message_fit.h"
#include "core/text/tools/output_parser.h"

namespace quire::dev {
namespace {

std::string text_of(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const auto& piece : pieces)
    text += piece.text;
  return text;
}

// The text that the template adds to begin the assistant's turn: the difference between its renderings with and without
// the generation prompt.
std::string generation_prompt(const std::string& source, const Json& request) {
  const auto chat_template = ChatTemplate::parse(source);
  if (!chat_template) return {};
  const Json messages = request.value("messages", Json::array({{{"role", "user"}, {"content", "Hi"}}}));
  const bool has_tools = request.contains("tools") && !request["tools"].empty();
  const auto fitted = fit_messages(messages, has_tools ? request["tools"] : Json(), probe_capabilities(*chat_template));
  if (!fitted) return {};
  Json context = {{"messages", fitted->messages},
                  {"add_generation_prompt", false},
                  {"enable_thinking", request.value("enable_thinking", true)},
                  {"bos_token", ""},
                  {"eos_token", ""}};
  if (!fitted->tools.is_null()) context["tools"] = fitted->tools;
  const auto without = chat_template->render(context);
  context["add_generation_prompt"] = true;
  const auto with = chat_template->render(context);
  if (!with) return {};
  const std::string whole = text_of(*with);
  if (!without) return whole;
  const std::string start = text_of(*without);
  const auto common = std::mismatch(start.begin(), start.end(), whole.begin(), whole.end());
  return std::string(common.second, whole.end());
}

std::vector<std::string> pieces_of(const std::string& text, const Json& request) {
  std::vector<std::string> pieces;
  const auto chunks = request.find("chunks");
  if (chunks != request.end() && chunks->is_array()) {
    for (const auto& piece : *chunks)
      pieces.push_back(piece.get<std::string>());
    return pieces;
  }
  std::size_t size = text.size();
  if (chunks != request.end() && chunks->is_number_integer())
    size = std::max<std::size_t>(chunks->get<std::size_t>(), 1);
  for (std::size_t begin = 0; begin < text.size(); begin += size)
    pieces.push_back(text.substr(begin, size));
  return pieces;
}

Result<ToolFormat> choose_format(const Json& request) {
  if (request.contains("format") && request["format"].is_string()) {
    const auto name = request["format"].get<std::string>();
    const ToolFormat* format = find_tool_format(name);
    if (format == nullptr) return invalid("unknown tool format '" + name + "'", "format");
    return *format;
  }
  if (!request.contains("template") || !request["template"].is_string())
    return invalid("a line needs a 'format' or a 'template'");
  return detect_tool_format(request["template"].get<std::string>());
}

OutputParserOptions read_options(const Json& request) {
  const bool named = request.contains("format") && request["format"].is_string();
  const bool has_tools = request.contains("tools") && !request["tools"].empty();
  OutputParserOptions options;
  options.eager = request.value("eager", !named);
  // vLLM parses by name regardless of the request's tools; with a template, no tools mean no calls.
  options.parse_tools = (named || has_tools) && request.value("tool_choice", "auto") != "none";
  options.parse_reasoning = request.value("reasoning_format", named ? "none" : "auto") != "none";
  options.json_content = request.contains("json_schema") || request.contains("response_format");
  if (request.contains("generation_prompt") && request["generation_prompt"].is_string()) {
    options.prompt_end = request["generation_prompt"].get<std::string>();
  } else if (!named) {
    options.prompt_end = generation_prompt(request["template"].get<std::string>(), request);
  }
  return options;
}

Json to_json(const ParsedOutput& output) {
  Json calls = Json::array();
  for (const auto& call : output.tool_calls)
    calls.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  return {{"content", output.content}, {"reasoning_content", output.reasoning}, {"tool_calls", std::move(calls)}};
}

Json parse_line(const Json& request) {
  if (!request.is_object()) return {{"error", "a line must be an object"}};
  const auto format = choose_format(request);
  if (!format) return {{"error", format.error().message}};
  const char* key = request.contains("text") ? "text" : "input";
  const std::string text = request.contains(key) ? request[key].get<std::string>() : "";
  OutputParser parser(*format, read_tool_specs(request.value("tools", Json::array())), read_options(request));
  ParsedOutput output;
  for (const auto& piece : pieces_of(text, request))
    output.apply(parser.push(piece));
  if (!request.value("is_partial", false)) output.apply(parser.finish());
  return to_json(output);
}

}  // namespace

void run_parse_tools(std::istream& in, std::ostream& out) {
  answer_json_lines(in, out, parse_line);
}

}  // namespace quire::dev
