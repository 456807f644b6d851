#include "server/api/common/canary.h"

#include <xxhash.h>

namespace quire {

namespace {

// Length of the first text that identifies a conversation; its later turns never change it.
constexpr std::size_t kMostOfText = 1024;
constexpr const char* kConversationFields[] = {"prompt_cache_key", "session_id", "user", "safety_identifier"};
constexpr const char* kTextFields[] = {"prompt", "input", "query", "text_1", "input_prefix"};

std::string beginning_of(const Json& text) {
  const std::string whole = text.is_string() ? text.get<std::string>() : dump_json(text);
  return whole.substr(0, kMostOfText);
}

const Json* text_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? nullptr : &*found;
}

// The first message of a user; a system prompt before it is the same in many conversations.
const Json* first_question(const Json& messages) {
  for (const Json& message : messages) {
    const Json* const role = message.is_object() ? text_member(message, "role") : nullptr;
    if (role != nullptr && *role == "user" && message.contains("content")) return &message["content"];
  }
  return nullptr;
}

std::string conversation_of(const Json& body) {
  for (const char* name : kConversationFields) {
    if (const Json* const id = text_member(body, name)) return name + id->get<std::string>();
  }
  if (const auto metadata = body.find("metadata"); metadata != body.end() && metadata->is_object()) {
    if (const Json* const id = text_member(*metadata, "user_id")) return "user_id" + id->get<std::string>();
  }
  for (const char* name : {"messages", "input"}) {
    const auto messages = body.find(name);
    if (messages == body.end() || !messages->is_array()) continue;
    if (const Json* const question = first_question(*messages)) return beginning_of(*question);
  }
  for (const char* name : kTextFields) {
    if (const auto text = body.find(name); text != body.end()) return beginning_of(*text);
  }
  return {};
}

}  // namespace

std::string canary_name(std::string_view model) {
  return std::string(model) + "@canary";
}

double place_in_traffic(const Json& body, std::string_view key_name) {
  const std::string who = std::string(key_name) + "\n" + conversation_of(body);
  return static_cast<double>(XXH3_64bits(who.data(), who.size()) >> 11) * 0x1p-53;
}

}  // namespace quire
