#include "core/text/chat_template_capabilities.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUserText = "Quire probes the user";
constexpr const char* kSystemText = "Quire probes the system";
constexpr const char* kReasoningText = "Quire probes the reasoning";
constexpr const char* kResultText = "Quire probes the result";
constexpr const char* kToolName = "quire_probe_tool";
constexpr const char* kArgument = "quire_probe_key";

class Prober {
 public:
  explicit Prober(const ChatTemplate& chat_template) : template_(chat_template) {}

  std::optional<std::string> render(const Json& messages, Json variables = Json::object()) const {
    variables["messages"] = messages;
    if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
    variables["bos_token"] = "";
    variables["eos_token"] = "";
    const auto pieces = template_.render(variables);
    if (!pieces) return std::nullopt;
    std::string text;
    for (const auto& piece : *pieces)
      text += piece.text;
    return text;
  }

  bool shows(const Json& messages, std::string_view text, const Json& variables = Json::object()) const {
    const auto rendered = render(messages, variables);
    return rendered && rendered->find(text) != std::string::npos;
  }

 private:
  const ChatTemplate& template_;
};

Json user_message(Json content) {
  return {{"role", "user"}, {"content", std::move(content)}};
}

Json text_part(const std::string& text) {
  return Json::array({{{"type", "text"}, {"text", text}}});
}

Json call_message(Json arguments, Json content) {
  return {{"role", "assistant"},
          {"content", std::move(content)},
          {"tool_calls", Json::array({{{"id", "call00001"},
                                       {"type", "function"},
                                       {"function", {{"name", kToolName}, {"arguments", std::move(arguments)}}}}})}};
}

Json result_message() {
  return {{"role", "tool"}, {"tool_call_id", "call00001"}, {"name", kToolName}, {"content", kResultText}};
}

Json probe_tools() {
  const Json parameters = {{"type", "object"},
                           {"properties", {{kArgument, {{"type", "string"}, {"description", "A key."}}}}},
                           {"required", Json::array({kArgument})}};
  return Json::array({{{"type", "function"},
                       {"function", {{"name", kToolName}, {"description", "A tool."}, {"parameters", parameters}}}}});
}

bool is_whole(std::string_view text, std::string_view marker) {
  return text.find(marker) != std::string_view::npos;
}

void probe_content(const Prober& prober, TemplateCapabilities& found) {
  const auto parts = prober.render(Json::array({user_message(text_part(kUserText))}));
  // A template that knows no parts prints the list as Python or JSON would.
  found.parts_content =
      parts && is_whole(*parts, kUserText) && !is_whole(*parts, "'type'") && !is_whole(*parts, "\"type\"");
  // Where neither works the template wants something else besides; strings are what most take.
  found.string_content = !found.parts_content || prober.shows(Json::array({user_message(kUserText)}), kUserText);
}

void probe_roles(const Prober& prober, TemplateCapabilities& found, const Json& user) {
  const auto with_role = [&user, &found](const char* role) {
    return Json::array(
        {{{"role", role}, {"content", found.string_content ? Json(kSystemText) : text_part(kSystemText)}}, user});
  };
  found.system_role = prober.shows(with_role("system"), kSystemText);
  found.developer_role = prober.shows(with_role("developer"), kSystemText);
}

void probe_tool_use(const Prober& prober, TemplateCapabilities& found, const Json& user) {
  const Json variables = {{"tools", probe_tools()}};
  found.tools = prober.shows(Json::array({user}), kToolName, variables);
  const Json object = {{kArgument, "value"}};
  const auto history = [&user](const Json& call) { return Json::array({user, call, result_message()}); };
  const auto shown = [&](const Json& arguments, const Json& content) {
    const auto text = prober.render(history(call_message(arguments, content)), variables);
    // Text that is quoted once more was not meant to be text; text must not be lost either.
    const bool good =
        text && is_whole(*text, kArgument) && text->find(std::string("\\\"") + kArgument) == std::string::npos;
    return good ? text : std::nullopt;
  };
  const auto without = prober.render(Json::array({user}), variables);
  const auto count = [](const std::optional<std::string>& text) {
    std::size_t times = 0;
    for (std::size_t at = text ? text->find(kArgument) : std::string::npos; at != std::string::npos;
         at = text->find(kArgument, at + 1))
      ++times;
    return times;
  };
  const auto as_object = shown(object, "");
  const auto as_text = shown(object.dump(), "");
  const std::size_t base = count(without);
  const bool object_works = count(as_object) > base;
  const bool text_works = count(as_text) > base;
  found.tool_calls = object_works || text_works;
  found.object_arguments = object_works && !text_works;
  found.tool_results = prober.shows(history(call_message(found.object_arguments ? object : Json(object.dump()), "")),
                                    kResultText, variables);
  const auto with_null = shown(found.object_arguments ? object : Json(object.dump()), nullptr);
  found.null_content = with_null && with_null->find("None") == std::string::npos;
}

void probe_thinking(const Prober& prober, TemplateCapabilities& found, const Json& user) {
  const auto on = prober.render(Json::array({user}), {{"enable_thinking", true}});
  const auto off = prober.render(Json::array({user}), {{"enable_thinking", false}});
  found.enable_thinking = on && off && *on != *off;
  Json answer = call_message({{kArgument, "value"}}, "");
  answer["reasoning_content"] = kReasoningText;
  found.reasoning_history =
      prober.shows(Json::array({user, answer, result_message()}), kReasoningText, {{"tools", probe_tools()}});
}

// --- fitting

std::string role_of(const Json& message) {
  const auto role = message.find("role");
  return role != message.end() && role->is_string() ? role->get<std::string>() : "";
}

Result<std::string> joined_text(const Json& parts, const std::string& field) {
  std::string text;
  for (const auto& part : parts) {
    if (part.is_string()) {
      text += part.get<std::string>();
      continue;
    }
    const std::string type =
        part.is_object() && part.contains("type") && part["type"].is_string() ? part["type"].get<std::string>() : "";
    if ((type != "text" && type != "input_text" && type != "refusal") ||
        !part.contains(type == "refusal" ? "refusal" : "text")) {
      return invalid("this model's chat template takes text only, not a part of type '" + type + "'", field);
    }
    const Json& written = part[type == "refusal" ? "refusal" : "text"];
    if (!written.is_string()) return invalid("a text part's text must be a string", field);
    text += written.get<std::string>();
  }
  return text;
}

Result<Json> fit_content(const Json& content, const TemplateCapabilities& capabilities, const std::string& field) {
  if (content.is_array() && !capabilities.parts_content) {
    auto text = joined_text(content, field);
    if (!text) return tl::make_unexpected(text.error());
    return Json(std::move(*text));
  }
  if (content.is_string() && !capabilities.string_content && capabilities.parts_content)
    return text_part(content.get<std::string>());
  if (content.is_null() && !capabilities.null_content) return Json("");
  return content;
}

void fit_arguments(Json& message, bool as_object) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (auto& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
        !call["function"].contains("arguments"))
      continue;
    Json& arguments = call["function"]["arguments"];
    if (as_object && arguments.is_string()) {
      Json parsed = Json::parse(arguments.get<std::string>(), nullptr, false);
      if (parsed.is_object()) arguments = std::move(parsed);
    } else if (!as_object && arguments.is_object()) {
      arguments = arguments.dump();
    }
  }
}

// Puts a system message's text before the next user message's.
void merge_system(Json& messages) {
  for (std::size_t i = 0; i + 1 < messages.size(); ++i) {
    if (role_of(messages[i]) != "system") continue;
    for (std::size_t j = i + 1; j < messages.size(); ++j) {
      Json& next = messages[j];
      if (role_of(next) != "user" || !next["content"].is_string() || !messages[i]["content"].is_string()) continue;
      next["content"] = messages[i]["content"].get<std::string>() + "\n" + next["content"].get<std::string>();
      messages.erase(i);
      return merge_system(messages);
    }
  }
}

}  // namespace

TemplateCapabilities probe_capabilities(const ChatTemplate& chat_template) {
  const Prober prober(chat_template);
  TemplateCapabilities found;
  found.tool_format = detect_tool_format(chat_template.source());
  probe_content(prober, found);
  const Json user = user_message(found.string_content ? Json(kUserText) : text_part(kUserText));
  probe_roles(prober, found, user);
  probe_tool_use(prober, found, user);
  probe_thinking(prober, found, user);
  return found;
}

Result<Json> fit_messages(const Json& messages, const TemplateCapabilities& capabilities) {
  Json fitted = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Json message = messages[i];
    if (!message.is_object()) return invalid("a message must be an object", "messages[" + std::to_string(i) + "]");
    const std::string field = "messages[" + std::to_string(i) + "].content";
    if (message.contains("content")) {
      auto content = fit_content(message["content"], capabilities, field);
      if (!content) return tl::make_unexpected(content.error());
      message["content"] = std::move(*content);
    } else if (message.contains("tool_calls")) {
      message["content"] = capabilities.null_content ? Json(nullptr) : Json("");
    }
    if (role_of(message) == "developer" && !capabilities.developer_role) message["role"] = "system";
    fit_arguments(message, capabilities.object_arguments);
    fitted.push_back(std::move(message));
  }
  if (!capabilities.system_role) merge_system(fitted);
  return fitted;
}

}  // namespace quire
