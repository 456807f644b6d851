#include "server/cli/run/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/files/regular_file.h"
#include "core/base/message_text.h"
#include "server/api/common/encodings.h"

namespace quire::cli {

namespace {

using nlohmann::json;

enum class Kind { kNumber, kInteger, kBoolean, kText };

struct Setting {
  std::string_view name;
  Kind kind;
  const char* accepts;
};

constexpr std::string_view kSystem = "system";

constexpr std::array kSettings = std::to_array<Setting>({
    {kSystem, Kind::kText, "the system message"},
    {"temperature", Kind::kNumber, "a number from 0 (always the likeliest token)"},
    {"top_p", Kind::kNumber, "a number above 0, up to 1"},
    {"top_k", Kind::kInteger, "an integer; 0: all tokens"},
    {"min_p", Kind::kNumber, "a number from 0 to 1"},
    {"repetition_penalty", Kind::kNumber, "a number above 0; 1: none"},
    {"max_tokens", Kind::kInteger, "an integer of at least 1"},
    {"min_tokens", Kind::kInteger, "an integer: the answer does not end before"},
    {"seed", Kind::kInteger, "an integer"},
    {"stop", Kind::kText, "a text that ends the answer"},
    {"reasoning_effort", Kind::kText, "low, medium or high, where the model knows it"},
    {"enable_thinking", Kind::kBoolean, "true or false, where the model knows it"},
});

bool fits(const json& value, Kind kind) {
  switch (kind) {
    case Kind::kNumber: return value.is_number();
    case Kind::kInteger: return value.is_number_integer();
    case Kind::kBoolean: return value.is_boolean();
    case Kind::kText: return true;
  }
  return false;
}

constexpr std::size_t kMostImageBytes = std::size_t{10} << 20;

// Content of a message: the text, or the pictures and the text.
json content_of(const json& pictures, const std::string& text) {
  if (pictures.empty()) return text;
  json content = pictures;
  content.push_back({{"type", "text"}, {"text", text}});
  return content;
}

}  // namespace

std::string Conversation::help() {
  std::string text =
      "/set NAME VALUE   change a setting, kept for this conversation; /set NAME resets it, /set shows all\n"
      "/image PATH       put a picture before the next question\n"
      "/retry            answer the last question again\n"
      "/clear            forget the conversation, keep the settings\n"
      "/help             this text\n"
      "/bye              end; so does Ctrl-D\n"
      "Ctrl-C            stops an answer, or clears the line\n"
      "\"\"\"               begins and ends a text of several lines\n\nsettings:\n";
  for (const Setting& setting : kSettings)
    text += fmt::format("  {:<18} {}\n", setting.name, setting.accepts);
  return text;
}

Result<void> Conversation::attach(const std::string& path) {
  const auto bytes = read_regular_file(path, kMostImageBytes);
  if (!bytes) return invalid(fmt::format("{} {}", path, bytes.error()));
  // The server detects the format from the bytes.
  const std::string url = "data:application/octet-stream;base64," + encode_base64(*bytes);
  attached_.push_back({{"type", "image_url"}, {"image_url", {{"url", url}}}});
  return {};
}

Result<void> Conversation::set(std::string_view name, std::string_view value) {
  const auto* found =
      std::find_if(kSettings.begin(), kSettings.end(), [&](const Setting& setting) { return setting.name == name; });
  if (found == kSettings.end()) {
    std::vector<std::string_view> names;
    for (const Setting& setting : kSettings)
      names.push_back(setting.name);
    return invalid(fmt::format("unknown setting '{}'; did you mean '{}'?", name, nearest_name(name, names)));
  }
  if (name == kSystem) {
    system_ = value;
  } else if (value.empty()) {
    fields_.erase(std::string(name));
  } else {
    json parsed = found->kind == Kind::kText ? json(std::string(value)) : json::parse(value, nullptr, false);
    if (!fits(parsed, found->kind)) return invalid(fmt::format("{} takes {}", name, found->accepts));
    fields_[std::string(name)] = std::move(parsed);
  }
  return {};
}

std::string Conversation::settings() const {
  std::string text;
  if (!system_.empty()) text += fmt::format("system {}\n", system_);
  for (const auto& [name, value] : fields_.items())
    text += fmt::format("{} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  return text.empty() ? "all settings have the model's defaults; /help lists them\n" : text;
}

json Conversation::body(const std::string& model, const std::string& question) const {
  json body = fields_;
  body["model"] = model;
  body["stream"] = true;
  json messages = json::array();
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
  messages.insert(messages.end(), messages_.begin(), messages_.end());
  messages.push_back({{"role", "user"}, {"content", content_of(attached_, question)}});
  body["messages"] = std::move(messages);
  return body;
}

void Conversation::add(const std::string& question, const std::string& answer) {
  messages_.push_back({{"role", "user"}, {"content", content_of(attached_, question)}});
  attached_ = json::array();
  messages_.push_back({{"role", "assistant"}, {"content", answer}});
}

std::string Conversation::take_back() {
  if (messages_.empty()) return {};
  messages_.erase(messages_.size() - 1);
  json content = std::move(messages_.back()["content"]);
  messages_.erase(messages_.size() - 1);
  if (content.is_string()) return content;
  std::string question = content.back()["text"];
  content.erase(content.size() - 1);
  attached_ = std::move(content);
  return question;
}

void Conversation::clear() {
  messages_.clear();
  attached_.clear();
}

}  // namespace quire::cli
