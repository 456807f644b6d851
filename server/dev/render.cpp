#include "server/dev/commands.h"

#include <ctime>
#include <optional>
#include <string>

#include "core/base/json/json.h"
#include "core/text/chat_template.h"

namespace quire::dev {
namespace {

Result<std::chrono::sys_seconds> parse_time(const std::string& text) {
  std::tm calendar{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &calendar);
  if (end == nullptr) return invalid("'now' must look like 2025-07-10T12:00:00", "now");
  return std::chrono::sys_seconds(std::chrono::seconds(timegm(&calendar)));
}

Json error_line(const std::string& message) {
  return {{"error", message}};
}

Json render_line(const Json& request) {
  if (!request.is_object() || !request.contains("template") || !request["template"].is_string()) {
    return error_line("a line must be an object with a string 'template'");
  }
  TemplateOptions options;
  options.trim_blocks = request.value("trim_blocks", true);
  options.lstrip_blocks = request.value("lstrip_blocks", true);
  std::optional<std::chrono::sys_seconds> now;
  if (request.contains("now")) {
    const auto parsed = parse_time(request["now"].get<std::string>());
    if (!parsed) return error_line(parsed.error().message);
    now = *parsed;
  }
  const auto chat_template = ChatTemplate::parse(request["template"].get<std::string>(), options);
  if (!chat_template) return error_line(chat_template.error().message);
  const auto pieces = chat_template->render(request.contains("context") ? request["context"] : Json::object(), {}, now);
  if (!pieces) return error_line(pieces.error().message);
  std::string text;
  Json marked = Json::array();
  for (const auto& piece : *pieces) {
    text += piece.text;
    marked.push_back({{"text", piece.text}, {"trusted", piece.trusted}});
  }
  Json line = {{"text", std::move(text)}};
  if (request.value("pieces", false)) line["pieces"] = std::move(marked);
  return line;
}

}  // namespace

void run_render(std::istream& in, std::ostream& out) {
  answer_json_lines(in, out, render_line);
}

}  // namespace quire::dev
