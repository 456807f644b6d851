#include "server/api/messages/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "server/api/conversation/media_parts.h"
#include "server/api/fields/messages.h"

namespace quire {

namespace {

constexpr std::size_t kMaxTurns = 100000;  // Anthropic's own bound

void append_line(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

void append(std::string& text, std::string_view more, const MediaList* media) {
  if (media == nullptr) return append_line(text, more);
  media->append(text, more);
}

std::string text_of(FieldReader& block) {
  auto text = block.string("text");
  if (!text) require_field(block, "text");
  return text.value_or("");
}

// Handles blocks without text for the prompt: blocks that another server made (its tools, its encrypted content) are
// skipped with a warning; the client's own pictures, sounds and files are refused.
void leave_out(FieldReader& block, const std::string& type) {
  if (type == "tool_addition" || type == "tool_removal") return;  // read with the tools
  constexpr std::string_view kMedia[] = {"image", "image_url", "input_image", "document",
                                         "audio", "video",     "file",        "container_upload"};
  for (const std::string_view media : kMedia) {
    if (type != media) continue;
    const bool is_read = type.find("image") != std::string::npos || type == "document";
    const char* const why =
        is_read ? "there is no place for it here" : "neither sounds, videos nor containers are read";
    return block.fail(
        "type", fmt::format("{}: content blocks of type '{}' are not supported: {}", block.path("type"), type, why),
        "unsupported_content");
  }
  block.warn(fmt::format("{}: a block of type '{}' is left out: another server made it", block.path("type"), type));
}

// Calls `take(block, type)` for each block of an array; a string is one text block.
template <typename Take>
void for_each_block(FieldReader& owner, FieldName field, const Take& take) {
  const Json* content = owner.find(field);
  if (content == nullptr) return;
  const Json as_blocks = content->is_string() ? Json::array({{{"type", "text"}, {"text", *content}}}) : Json();
  if (content->is_string()) content = &as_blocks;
  if (!content->is_array()) {
    return owner.fail(field, fmt::format("{}: Input should be a string or an array of blocks", owner.path(field)),
                      "invalid_type");
  }
  for (std::size_t i = 0; i < content->size() && !owner.error(); ++i) {
    const std::string path = fmt::format("{}.{}", owner.path(field), i);
    if (!(*content)[i].is_object())
      return owner.fail(fmt::format("{}.{}", std::string_view(field), i), path + ": Input should be an object",
                        "invalid_type");
    FieldReader block((*content)[i], path + ".");
    const auto type = block.string("type");
    if (!type) require_field(block, "type");
    if (!block.error()) take(block, *type);
    take_error(owner, block);
  }
}

std::string read_blocks(FieldReader& owner, const char* field, MediaList* media);

// A document's title, context and content: a text, blocks, or a file.
std::string document_text(FieldReader& block, MediaList* media) {
  const Json* given = block.object("source");
  if (given == nullptr) {
    require_field(block, "source");
    return {};
  }
  FieldReader source(*given, block.path("source."));
  const auto kind = source.string("type");
  std::string text = block.string("title").value_or("");
  append_line(text, block.string("context").value_or(""));
  std::string content;
  if (kind == "text") {
    content = source.string("data").value_or("");
  } else if (kind == "content") {
    content = read_blocks(source, "content", media);
  } else {
    content = read_document_file(block, source, media);
  }
  take_error(block, source);
  append(text, content, media);
  return text;
}

// The text of a block with the marks of its pictures; nullopt for other blocks. `media` null: pictures are refused.
std::optional<std::string> text_in(FieldReader& block, const std::string& type, MediaList* media) {
  if (type == "text") return text_of(block);
  if (type == "tool_reference") return block.string("tool_name").value_or("");
  if (type == "search_result") {
    std::string text = block.string("title").value_or("");
    append_line(text, block.string("source").value_or(""));
    append_line(text, read_blocks(block, "content", nullptr));
    return text;
  }
  if (type == "image" && media != nullptr) return read_image_block(block, *media);
  // Some clients send OpenAI's parts.
  if (media != nullptr) {
    if (auto picture = read_picture_part(block, type, *media)) return picture;
  }
  if (type == "document") return document_text(block, media);
  return std::nullopt;
}

std::string read_blocks(FieldReader& owner, const char* field, MediaList* media) {
  std::string text;
  for_each_block(owner, field, [&](FieldReader& block, const std::string& type) {
    if (const auto words = text_in(block, type, media)) return append(text, *words, media);
    leave_out(block, type);
  });
  return text;
}

// A tool's failure becomes part of the text, since templates show nothing else of a result.
std::string result_text(FieldReader& result, MediaList& media) {
  const std::string text = read_blocks(result, "content", &media);
  if (!result.boolean("is_error", false)) return text;
  return text.empty() ? "Error" : "Error: " + text;
}

class Conversation {
 public:
  Conversation(Json& messages, MediaList& media) : messages_(messages), media_(media) {}

  void add(FieldReader& message) {
    const auto role = message.word("role", {"user", "assistant", "system"});
    if (!role) require_field(message, "role");
    if (!message.has("content")) require_field(message, "content");
    if (message.error()) return;
    if (role == "assistant") {
      finish_turn(message);
      add_assistant(message);
    } else if (role == "system") {
      if (const std::string text = read_blocks(message, "content", nullptr); !text.empty()) append_text("system", text);
    } else {
      add_user(message);
    }
  }

  // The turn after a call must hold its result.
  void finish_turn(FieldReader& message) {
    if (open_calls_.empty()) return;
    message.fail("content", fmt::format("`tool_use` ids were found without `tool_result` blocks immediately after: {}",
                                        fmt::join(open_calls_, ", ")));
  }

 private:
  void add_user(FieldReader& message) {
    std::string text;
    for_each_block(message, "content", [&](FieldReader& block, const std::string& type) {
      if (const auto words = text_in(block, type, &media_)) {
        media_.append(text, *words);
      } else if (type == "tool_result") {
        if (!text.empty()) append_text("user", std::exchange(text, {}));
        add_result(block);
      } else {
        leave_out(block, type);
      }
    });
    const bool only_results = !messages_.empty() && messages_.back()["role"] == "tool";
    if (!text.empty() || !only_results) append_text("user", text);
  }

  void add_result(FieldReader& block) {
    const std::string id = block.string("tool_use_id").value_or("");
    const auto call = std::find(open_calls_.begin(), open_calls_.end(), id);
    if (call == open_calls_.end()) {
      return block.fail("tool_use_id", fmt::format("{}: unexpected `tool_use_id`: '{}' is no `tool_use` block of the "
                                                   "previous message",
                                                   block.path("tool_use_id"), id));
    }
    open_calls_.erase(call);
    messages_.push_back(Json{{"role", "tool"}, {"content", result_text(block, media_)}, {"tool_call_id", id}});
  }

  void add_assistant(FieldReader& message) {
    if (messages_.empty() || messages_.back()["role"] != "assistant")
      messages_.push_back(Json{{"role", "assistant"}, {"content", ""}});
    Json& turn = messages_.back();
    for_each_block(message, "content", [&](FieldReader& block, const std::string& type) {
      if (const auto words = text_in(block, type, nullptr)) {
        append_line(turn["content"].get_ref<std::string&>(), *words);
      } else if (type == "thinking") {
        const auto thinking = block.string("thinking");
        if (!thinking) require_field(block, "thinking");
        block.string("signature");
        if (!turn.contains("reasoning_content")) turn["reasoning_content"] = "";
        append_line(turn["reasoning_content"].get_ref<std::string&>(), thinking.value_or(""));
      } else if (type == "tool_use") {
        add_call(block, turn);
      } else {
        leave_out(block, type);
      }
    });
  }

  void add_call(FieldReader& block, Json& turn) {
    const auto id = block.string("id");
    const auto name = block.string("name");
    const Json* input = block.find("input");
    if (!id || id->empty()) require_field(block, "id");
    if (!name || name->empty()) require_field(block, "name");
    if (block.error()) return;
    open_calls_.push_back(*id);
    turn["tool_calls"].push_back(
        Json{{"id", *id},
             {"type", "function"},
             {"function", {{"name", *name}, {"arguments", input != nullptr ? *input : Json()}}}});
  }

  void append_text(const char* role, const std::string& text) {
    if (!messages_.empty() && messages_.back()["role"] == role) {
      media_.append(messages_.back()["content"].get_ref<std::string&>(), text);
    } else {
      messages_.push_back(Json{{"role", role}, {"content", text}});
    }
  }

  Json& messages_;
  MediaList& media_;
  std::vector<std::string> open_calls_;  // ids without a result yet
};

void read_turns(FieldReader& reader, const Json& turns, ChatPromptFields& fields) {
  if (turns.empty()) return reader.fail(fields::messages::kMessages, "messages: at least one message is required");
  if (turns.size() > kMaxTurns)
    return reader.fail(fields::messages::kMessages, fmt::format("messages: more than {} messages", kMaxTurns));
  Conversation conversation(fields.messages, *fields.media);
  for (std::size_t i = 0; i < turns.size() && !reader.error(); ++i) {
    const std::string path = fmt::format("messages.{}", i);
    if (!turns[i].is_object()) return reader.fail(path, path + ": Input should be an object", "invalid_type");
    FieldReader message(turns[i], path + ".");
    conversation.add(message);
    if (i + 1 == turns.size() && !message.error()) conversation.finish_turn(message);
    take_error(reader, message);
  }
}

}  // namespace

void require_field(FieldReader& reader, FieldName name) {
  reader.fail(name, reader.path(name) + ": Field required", "missing_required_parameter");
}

namespace {

// Claude Code begins its system prompt with a block about billing that differs in each request. It is left out: the
// model does not need it, and it would make every prompt miss the prefix cache.
std::optional<std::string> system_text(FieldReader& reader) {
  constexpr std::string_view kBilling = "x-anthropic-billing-header:";
  if (!reader.has(fields::messages::kSystem)) return std::nullopt;
  std::string text;
  bool only_billing = false;
  for_each_block(reader, fields::messages::kSystem, [&](FieldReader& block, const std::string& type) {
    if (type != "text") return leave_out(block, type);
    const std::string words = text_of(block);
    if (words.starts_with(kBilling)) {
      only_billing = text.empty();
      return;
    }
    only_billing = false;
    append_line(text, words);
  });
  if (only_billing) return std::nullopt;
  return text;
}

}  // namespace

ChatPromptFields read_anthropic_prompt(FieldReader& reader, std::shared_ptr<MediaList> media) {
  ChatPromptFields fields;
  fields.media = std::move(media);
  fields.media->read_settings(reader);
  if (const auto system = system_text(reader))
    fields.messages.push_back(Json{{"role", "system"}, {"content", *system}});
  const Json* turns = reader.array(fields::messages::kMessages);
  if (turns == nullptr) require_field(reader, fields::messages::kMessages);
  if (!reader.error()) read_turns(reader, *turns, fields);
  if (fields.messages.empty())
    reader.fail(fields::messages::kMessages, "messages: at least one message with content is required");
  if (reader.error()) return fields;
  fields.continue_final_message = fields.messages.back()["role"] == "assistant";
  fields.add_generation_prompt = !fields.continue_final_message;
  return fields;
}

}  // namespace quire
