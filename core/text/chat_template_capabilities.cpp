#include "core/text/chat_template_capabilities.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <initializer_list>
#include <optional>
#include <string>

#include "core/base/json/json.h"
#include "core/text/chat_template.h"

namespace quire {
namespace {

constexpr const char* kUserText = "Quire probes the user";
constexpr const char* kLaterText = "Quire probes what follows";
constexpr const char* kAnswerText = "Quire probes the answer";
constexpr const char* kSystemText = "Quire probes the system";
constexpr const char* kSecondSystemText = "Quire probes more of the system";
constexpr const char* kReasoningText = "Quire probes the reasoning";
constexpr const char* kResultText = "Quire probes the result";
constexpr const char* kSecondResultText = "Quire probes the other result";
constexpr const char* kToolName = "quire_probe_tool";
constexpr const char* kArgument = "quire_probe_key";
constexpr const char* kValue = "quire_probe_value";
constexpr const char* kSecondValue = "quire_probe_other";
constexpr const char* kShortId = "call00001";
constexpr const char* kSecondShortId = "call00002";
constexpr const char* kLongId = "call_quire_probes_the_id";

// Candidates in order of preference.
constexpr std::array kSwitches = {
    ThinkingSwitch{"enable_thinking", "true", "false"},
    ThinkingSwitch{"thinking", "true", "false"},
    ThinkingSwitch{"reasoning", "true", "false"},
    ThinkingSwitch{"enable_reasoning", "true", "false"},
    ThinkingSwitch{"thinking_mode", R"("thinking")", R"("chat")"},
    ThinkingSwitch{"thinking_mode", R"("on")", R"("off")"},
    ThinkingSwitch{"skip_thinking", "false", "true"},
    ThinkingSwitch{"thinking_budget", "-1", "0"},
};

using Texts = std::initializer_list<std::string_view>;

class Prober {
 public:
  Prober(const ChatTemplate& chat_template, const ToolFormat& format) : template_(chat_template), format_(format) {}

  std::optional<std::string> render(const Json& messages, Json variables = Json::object()) const {
    variables["messages"] = messages;
    if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
    variables["bos_token"] = "";
    variables["eos_token"] = "";
    add_format_variables(variables, format_);
    const auto pieces = template_.render(variables);
    if (!pieces) return std::nullopt;
    std::string text;
    for (const auto& piece : *pieces)
      text += piece.text;
    return text;
  }

  bool shows(const Json& messages, Texts texts, const Json& variables = Json::object()) const {
    const auto rendered = render(messages, variables);
    return rendered && std::all_of(texts.begin(), texts.end(),
                                   [&](std::string_view text) { return rendered->find(text) != std::string::npos; });
  }

 private:
  const ChatTemplate& template_;
  const ToolFormat& format_;
};

Json probe_text_part(const std::string& text) {
  return Json::array({{{"type", "text"}, {"text", text}}});
}

Json call_of(const Json& arguments, const char* id) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", kToolName}, {"arguments", arguments}}}};
}

Json probe_tools() {
  const Json key = {{"type", "string"}, {"description", "A key."}};
  Json function = {{"name", kToolName}, {"description", "A tool."}};
  function["parameters"] = {
      {"type", "object"}, {"properties", {{kArgument, key}}}, {"required", Json::array({kArgument})}};
  return Json::array({{{"type", "function"}, {"function", function}}});
}

// Messages in the form that the template is known to take so far.
class Shapes {
 public:
  explicit Shapes(const TemplateCapabilities& found) : found_(found) {}

  Json message(const char* role, const std::string& text) const {
    return {{"role", role}, {"content", found_.string_content ? Json(text) : probe_text_part(text)}};
  }
  Json user(const char* text = kUserText) const { return message("user", text); }
  Json answer(const char* text = kAnswerText) const { return message("assistant", text); }
  Json result(const char* text = kResultText, const char* id = kShortId) const {
    Json result = message("tool", text);
    result["tool_call_id"] = id;
    return result;
  }
  Json arguments(const char* value = kValue) const {
    const Json object = {{kArgument, value}};
    return found_.object_arguments ? object : Json(object.dump());
  }
  Json calls(Json list, const std::string& text = "") const {
    Json answer = message("assistant", text);
    answer["tool_calls"] = std::move(list);
    return answer;
  }
  Json call(const char* id = kShortId, const std::string& text = "") const {
    if (found_.tool_calls) return calls(Json::array({call_of(arguments(), id)}), text);
    return answer(kAnswerText);
  }

 private:
  const TemplateCapabilities& found_;
};

void probe_content(const Prober& prober, TemplateCapabilities& found) {
  const auto parts = prober.render(Json::array({{{"role", "user"}, {"content", probe_text_part(kUserText)}}}));
  const auto has = [&parts](std::string_view text) { return parts->find(text) != std::string::npos; };
  // A template that knows no parts prints the list as Python or JSON would.
  found.parts_content = parts && has(kUserText) && !has("'type'") && !has("\"type\"");
  // If neither form works, the template requires something else too; strings are the form that most templates take.
  const Json text = {{"role", "user"}, {"content", kUserText}};
  found.string_content = !found.parts_content || prober.shows(Json::array({text}), {kUserText});
}

void probe_roles(const Prober& prober, TemplateCapabilities& found) {
  const Shapes as(found);
  const Json system = as.message("system", kSystemText);
  const Json second = as.message("system", kSecondSystemText);
  const Json later = as.user(kLaterText);
  const auto shows = [&](const Json& messages, Texts texts) { return prober.shows(messages, texts); };
  found.system_role = shows({system, as.user()}, {kSystemText, kUserText});
  found.developer_role = shows({as.message("developer", kSystemText), as.user()}, {kSystemText, kUserText});
  found.several_systems = shows({system, second, as.user()}, {kSystemText, kSecondSystemText, kUserText});
  found.later_system =
      shows({as.user(), as.answer(), second, later}, {kUserText, kAnswerText, kSecondSystemText, kLaterText}) &&
      shows({system, as.user(), as.answer(), second, later}, {kSystemText, kSecondSystemText, kLaterText});
  found.last_system =
      shows({as.user(), second}, {kUserText, kSecondSystemText}) &&
      shows({system, as.user(), as.answer(), later, second}, {kSystemText, kLaterText, kSecondSystemText});
  found.repeated_turns =
      shows({as.user(), later}, {kUserText, kLaterText}) &&
      shows({as.user(), as.answer(), as.answer(kReasoningText), later}, {kAnswerText, kReasoningText, kLaterText});
  found.answer_first = shows({as.answer(), later}, {kAnswerText, kLaterText});
  found.empty_answers = shows({as.user(), as.answer(""), later}, {kUserText, kLaterText});
  found.without_user = shows(Json::array({system}), {kSystemText});
  found.system_with_answer =
      prober.shows({system, as.user(), as.answer()}, {kSystemText}, {{"add_generation_prompt", false}});
}

std::size_t num_places(const std::optional<std::string>& text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text ? text->find(word) : std::string::npos; at != std::string::npos;
       at = text->find(word, at + 1))
    ++count;
  return count;
}

// Chooses the form of arguments that is rendered properly. If text arguments are quoted again, the template does not
// expect text; if objects come out in Python's notation while text works too, it does not expect objects.
void probe_arguments(const Prober& prober, TemplateCapabilities& found, const Json& variables) {
  const Shapes as(found);
  const Json object = {{kArgument, kValue}};
  const std::size_t base = num_places(prober.render(Json::array({as.user()}), variables), kArgument);
  const auto rendered = [&](const Json& arguments) {
    auto text =
        prober.render({as.user(), as.calls(Json::array({call_of(arguments, kShortId)})), as.result()}, variables);
    const bool is_shown = num_places(text, kArgument) > base && num_places(text, kValue) > 0 &&
                          text->find(std::string("\\\"") + kArgument) == std::string::npos;
    return is_shown ? text : std::nullopt;
  };
  const auto as_object = rendered(object);
  const auto as_text = rendered(object.dump());
  const bool is_python = as_object && as_object->find(std::string("{'") + kArgument) != std::string::npos;
  found.tool_calls = as_object || as_text;
  found.object_arguments = as_object && (!is_python || !as_text);
}

void probe_tool_use(const Prober& prober, TemplateCapabilities& found) {
  const Shapes as(found);
  Json variables = {{"tools", probe_tools()}};
  found.tools = prober.shows(Json::array({as.user()}), {kToolName}, variables);
  if (!found.tools) variables = Json::object();
  probe_arguments(prober, found, variables);
  const auto shows = [&](const Json& messages, Texts texts) { return prober.shows(messages, texts, variables); };
  found.tool_results = shows({as.user(), as.call(), as.result()}, {kResultText});
  if (found.tools)
    found.without_user = shows(Json::array({as.message("system", kSystemText)}), {kSystemText, kToolName});
  found.lone_results =
      shows({as.result(), as.user()}, {kResultText}) && shows({as.user(), as.result(), as.answer()}, {kResultText});
  found.user_after_result = shows({as.user(), as.call(), as.result(), as.user(kLaterText), as.answer(), as.user()},
                                  {kResultText, kLaterText, kAnswerText});
  found.system_with_results =
      shows({as.message("system", kSystemText), as.user(), as.call(), as.result()}, {kSystemText});
  if (!found.tool_calls) return;
  found.nine_letter_ids = !shows({as.user(), as.call(kLongId), as.result(kResultText, kLongId)}, {kValue});
  const Json with_text = as.call(kShortId, kReasoningText);
  found.text_beside_calls =
      shows({as.user(), with_text, as.result()}, {kReasoningText, kValue}) &&
      shows({as.user(), with_text, as.result(), as.answer(), as.user()}, {kReasoningText, kValue});
  const Json both =
      Json::array({call_of(as.arguments(), kShortId), call_of(as.arguments(kSecondValue), kSecondShortId)});
  const Json results = {as.user(), as.calls(both), as.result(), as.result(kSecondResultText, kSecondShortId)};
  found.parallel_calls = found.tool_results ? shows(results, {kValue, kSecondValue, kResultText, kSecondResultText})
                                            : shows({as.user(), as.calls(both), as.user()}, {kValue, kSecondValue});
  Json without_text = as.call();
  without_text["content"] = nullptr;
  const auto with_null = prober.render({as.user(), without_text, as.result()}, variables);
  found.null_content = num_places(with_null, kValue) > 0 && with_null->find("None") == std::string::npos;
}

void probe_thinking(const Prober& prober, TemplateCapabilities& found) {
  const Shapes as(found);
  const auto rendered = [&](const ThinkingSwitch& each, std::string_view value) {
    return prober.render(Json::array({as.user()}), {{each.name, Json::parse(value)}});
  };
  for (const ThinkingSwitch& each : kSwitches) {
    const auto on = rendered(each, each.on);
    const auto off = rendered(each, each.off);
    if (!on || !off || *on == *off) continue;
    found.thinking = &each;
    break;
  }
  Json answer = as.call();
  answer["reasoning_content"] = kReasoningText;
  found.reasoning_history = prober.shows({as.user(), answer, as.result()}, {kReasoningText},
                                         found.tools ? Json{{"tools", probe_tools()}} : Json::object());
}

}  // namespace

void add_format_variables(Json& context, const ToolFormat& format) {
  if (format.tools_variable.empty()) return;
  const auto tools = context.find("tools");
  context[std::string(format.tools_variable)] = tools == context.end() ? std::string() : tools->dump(2);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> day{};
  std::strftime(day.data(), day.size(), "%b %d %Y", &local);
  context["datetime"] = day.data();
}

TemplateCapabilities probe_capabilities(const ChatTemplate& chat_template) {
  TemplateCapabilities found;
  found.tool_format = detect_tool_format(chat_template.source());
  const Prober prober(chat_template, found.tool_format);
  probe_content(prober, found);
  probe_roles(prober, found);
  probe_tool_use(prober, found);
  probe_thinking(prober, found);
  return found;
}

}  // namespace quire
