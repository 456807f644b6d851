#include "server/api/conversation/chat_prompt.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/text/chat_template.h"
#include "core/text/message_fit.h"
#include "server/api/conversation/custom_tools.h"
#include "server/api/conversation/media_parts.h"
#include "server/api/fields/chat.h"
#include "server/api/fields/generation.h"

namespace quire {

namespace {

// A custom tool's call as a call of the function that represents it.
Json read_custom_call(FieldReader& call) {
  const Json* custom = call.object("custom");
  if (custom == nullptr) call.missing("custom");
  if (call.error()) return nullptr;
  FieldReader inner(*custom, call.path("custom."));
  const auto name = inner.string("name");
  if (!name) inner.missing("name");
  Json function{{"name", name.value_or("")}, {"arguments", custom_arguments(inner.string("input").value_or(""))}};
  take_error(call, inner);
  return Json{{"id", call.string("id").value_or("")}, {"type", "function"}, {"function", std::move(function)}};
}

// Arguments stay unchanged: OpenAI sends them as JSON text, other APIs as an object.
Json read_tool_calls(FieldReader& message) {
  const Json* calls = message.array("tool_calls");
  if (calls == nullptr || calls->empty()) return nullptr;
  Json list = Json::array();
  for (const Json& call : *calls) {
    const std::string path = fmt::format("tool_calls[{}].", list.size());
    if (!call.is_object()) {
      message.fail(path.substr(0, path.size() - 1), "A tool call must be an object", "invalid_type");
      return nullptr;
    }
    FieldReader fields(call, message.path(path));
    if (fields.word("type", {"function", "custom"}) == "custom") {
      list.push_back(read_custom_call(fields));
      take_error(message, fields);
      if (message.error()) return nullptr;
      continue;
    }
    const Json* function = fields.object("function");
    if (function == nullptr) {
      message.fail(path + "function", fields.error() ? fields.error()->message : "A tool call needs a 'function'");
      return nullptr;
    }
    FieldReader inner(*function, message.path(path + "function."));
    const auto name = inner.string("name");
    if (!name) inner.fail("name", "A tool call's function needs a 'name'");
    Json arguments = Json::object();
    if (const Json* given = inner.find("arguments")) arguments = *given;
    if (inner.error()) {
      take_error(message, inner);
      return nullptr;
    }
    Json entry{{"id", fields.string("id").value_or("")}, {"type", "function"}};
    take_error(message, fields);
    entry["function"] = {{"name", *name}, {"arguments", std::move(arguments)}};
    list.push_back(std::move(entry));
  }
  return list;
}

// OpenAI's first form of a call has no id, and its result is the message after it. Templates that show ids need the
// same id in both; some accept nine letters only.
std::string function_call_id(std::size_t index) {
  return fmt::format("call{:05}", index);
}

Json read_function_call(FieldReader& message, std::size_t index) {
  const Json* call = message.object("function_call");
  if (call == nullptr) return nullptr;
  FieldReader fields(*call, message.path("function_call."));
  const auto name = fields.string("name");
  if (!name) fields.missing("name");
  Json function{{"name", name.value_or("")}};
  const Json* const arguments = fields.find("arguments");
  function["arguments"] = arguments != nullptr ? *arguments : Json("");
  if (fields.error()) message.fail("function_call", fields.error()->message, fields.error()->code);
  return Json::array({Json{{"id", function_call_id(index)}, {"type", "function"}, {"function", std::move(function)}}});
}

bool is_reasoning_part(const Json& part) {
  const Json type = part.is_object() ? part.value("type", Json()) : Json();
  return type == "thinking" || type == "reasoning";
}

// Reads the reasoning among an answer's parts: a text or, in Mistral's form, a list of text parts.
void read_reasoning_parts(const Json& content, Json& message) {
  std::string text;
  for (const Json& part : content.is_array() ? content : Json::array()) {
    if (!is_reasoning_part(part)) continue;
    const Json given = part.value("thinking", part.value("text", Json()));
    for (const Json& each : given.is_array() ? given : Json::array({given})) {
      const Json words = each.is_object() ? each.value("text", Json()) : each;
      if (words.is_string()) text += words.get<std::string>();
    }
  }
  if (!text.empty()) message["reasoning_content"] = std::move(text);
}

Json read_message(FieldReader& reader, const Json& given, std::size_t index, MediaList* media) {
  const std::string path = fmt::format("messages[{}]", index);
  if (!reader.is_object(path, given)) return nullptr;
  FieldReader fields(given, path + ".");
  auto role = fields.word("role", {"system", "developer", "user", "assistant", "tool", "function"});
  if (!role) fields.missing("role");
  Json message{{"role", role.value_or("user")}};
  const auto content = read_content(fields, "content", role == "assistant", media);
  const bool has_parts = given.value("content", Json()) != Json::array();
  message["content"] = content && has_parts ? Json(*content) : Json(nullptr);
  for (const char* name : {"name", "tool_call_id", "reasoning_content"}) {
    if (auto value = fields.string(name)) message[name] = std::move(*value);
  }
  if (auto reasoning = fields.string("reasoning")) message["reasoning_content"] = std::move(*reasoning);
  if (role == "assistant" && has_parts) read_reasoning_parts(given.value("content", Json()), message);
  fields.refuse("audio", "this model reads and writes text only");
  if (role == "function") {
    message["role"] = "tool";
    message["tool_call_id"] = function_call_id(index - std::min<std::size_t>(index, 1));
  }
  if (role == "assistant") {
    Json calls = fields.has("function_call") ? read_function_call(fields, index) : read_tool_calls(fields);
    if (!calls.is_null()) message["tool_calls"] = std::move(calls);
  }
  // A tool may return nothing, and an answer may have been cut before its first word.
  const bool may_be_empty = role == "assistant" || role == "tool" || role == "function";
  if (!has_parts && !may_be_empty) fields.fail("content", "'content' has no parts");
  if (message["content"].is_null() && !may_be_empty) fields.missing("content");
  // Templates that expect a string fail on null; an empty text renders the same.
  if (message["content"].is_null())
    message["content"] = fields.has("refusal") ? fields.string("refusal").value_or("") : "";
  take_error(reader, fields);
  return message;
}

void read_messages(FieldReader& reader, ChatPromptFields& fields) {
  const Json* messages = reader.array(fields::chat::kMessages);
  if (messages == nullptr) return reader.missing(fields::chat::kMessages);
  if (messages->empty()) return reader.fail(fields::chat::kMessages, "'messages' must not be empty");
  if (messages->size() > kMaxMessages)
    return reader.fail(fields::chat::kMessages, fmt::format("More than {} messages", kMaxMessages));
  for (const Json& given : *messages) {
    fields.messages.push_back(read_message(reader, given, fields.messages.size(), fields.media.get()));
    if (reader.error()) return;
  }
}

// A text that no message holds: it marks where a continued message ends in the rendered prompt.
std::string end_mark(const Json& messages) {
  const std::string all = dump_json(messages);
  std::string mark = "QuireContinuesHere";
  while (all.find(mark) != std::string::npos)
    mark += 'e';
  return mark;
}

std::vector<TextPiece> cut_at(std::vector<TextPiece> pieces, std::size_t size) {
  std::vector<TextPiece> kept;
  for (TextPiece& piece : pieces) {
    if (size == 0) break;
    if (piece.text.size() > size) piece.text.resize(size);
    size -= piece.text.size();
    kept.push_back(std::move(piece));
  }
  return kept;
}

// Cuts the prompt after the last message's text and restores that text, because templates trim it.
std::optional<std::vector<TextPiece>> cut_after_text(std::vector<TextPiece> pieces, const std::string& mark,
                                                     const std::string& content, std::string_view think_end) {
  std::string whole;
  for (const TextPiece& piece : pieces)
    whole += piece.text;
  const std::size_t at = whole.rfind(mark);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view before = std::string_view(whole).substr(0, at);
  const auto trimmed = [](const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    return begin == std::string::npos ? std::string() : text.substr(begin);
  };
  for (const std::string& shown : {content, trimmed(content)}) {
    if (!before.ends_with(shown)) continue;
    pieces = cut_at(std::move(pieces), at - shown.size());
    if (!content.empty()) pieces.push_back({content, false});
    return pieces;
  }
  // A template may render thoughts in its own form; then the text after them is searched for.
  const std::size_t end = think_end.empty() ? std::string::npos : content.rfind(think_end);
  const std::string rest = end == std::string::npos ? std::string() : trimmed(content.substr(end + think_end.size()));
  if (rest.empty() || !before.ends_with(rest)) return std::nullopt;
  return cut_at(std::move(pieces), at);
}

// Removes the start of a reasoning section that the prompt has already begun.
std::string without_begun_thought(const std::vector<TextPiece>& pieces, const std::string& content,
                                  const ToolFormat& format) {
  const std::string_view last = pieces.empty() ? std::string_view() : pieces.back().text;
  const std::string_view prompt = last.substr(0, last.find_last_not_of(" \t\r\n") + 1);
  const bool begins = !format.think_begin.empty() && content.starts_with(format.think_begin);
  return begins && prompt.ends_with(format.think_begin) ? content.substr(format.think_begin.size()) : content;
}

Json template_context(const ServedModel& model, const ChatPromptFields& fields, FittedMessages fitted) {
  Json context = Json::object();
  context["messages"] = std::move(fitted.messages);
  if (!fitted.tools.is_null()) context["tools"] = std::move(fitted.tools);
  context["add_generation_prompt"] = fields.add_generation_prompt;
  const auto bos = model.tokenizer->bos();
  context["bos_token"] = bos ? std::string(model.tokenizer->token_bytes(*bos)) : std::string();
  const auto ends = model.tokenizer->end_of_generation();
  context["eos_token"] = ends.empty() ? std::string() : std::string(model.tokenizer->token_bytes(ends.front()));
  for (const auto& [name, value] : fields.template_kwargs.items()) {
    if (!context.contains(name)) context[name] = value;
  }
  const ThinkingSwitch* const thinking = model.template_capabilities.thinking;
  const Json wish = fields.template_kwargs.value("enable_thinking", Json());
  if (thinking != nullptr && wish.is_boolean() && !context.contains(thinking->name))
    context[std::string(thinking->name)] = Json::parse(wish == true ? thinking->on : thinking->off);
  add_format_variables(context, model.template_capabilities.tool_format);
  return context;
}

std::optional<std::vector<TextPiece>> render(FieldReader& reader, const ServedModel& model,
                                             const ChatPromptFields& fields) {
  auto fitted = fit_messages(fields.messages, fields.tools, model.template_capabilities);
  if (!fitted) {
    reader.fail(fitted.error());
    return std::nullopt;
  }
  for (const std::string& warning : fitted->warnings)
    reader.warn(fmt::format("{}: {}", fields.param, warning));
  const std::vector<TextInsert> inserts = std::move(fitted->inserts);
  Json context = template_context(model, fields, *std::move(fitted));
  auto pieces = model.chat_template->render(context, {.work = reader.limit()});
  for (auto* const simpler : {filled_tools, plain_tools}) {
    if (pieces || pieces.error().kind != ErrorKind::kInvalidRequest || !context.contains("tools")) break;
    context["tools"] = simpler(std::move(context["tools"]));
    auto simple = model.chat_template->render(context, {.work = reader.limit()});
    if (simple && simpler == &plain_tools)
      reader.warn("tools: the chat template cannot show their schemas as they are: it shows the types of parameters");
    if (simple) pieces = std::move(simple);
  }
  if (pieces) return with_inserts(*std::move(pieces), inserts);
  Error error = pieces.error();
  if (error.param.empty()) error.param = fields.param;
  reader.fail(std::move(error));
  return std::nullopt;
}

// If the template does not show the last message, its text goes where an answer would begin.
std::optional<std::vector<TextPiece>> render_continued(FieldReader& reader, const ServedModel& model,
                                                       const ChatPromptFields& fields) {
  const Json& last = fields.messages.back();
  if (last.contains("tool_calls") || !last["content"].is_string()) {
    reader.fail(fields::chat::kContinueFinalMessage, "The final message has calls: only a text can be continued");
    return std::nullopt;
  }
  const auto content = last["content"].get<std::string>();
  const std::string mark = end_mark(fields.messages);
  ChatPromptFields marked = fields;
  marked.messages.back()["content"] = content + mark;
  const Json no_fields = Json::object();
  FieldReader attempt(no_fields);
  attempt.set_limit(reader.limit());
  if (auto pieces = render(attempt, model, marked)) {
    if (auto cut = cut_after_text(*std::move(pieces), mark, content, model.tool_format.think_end)) {
      take_error(reader, attempt);
      return cut;
    }
  }
  marked.messages.erase(marked.messages.size() - 1);
  marked.add_generation_prompt = true;
  if (marked.messages.empty()) {
    reader.fail(fields::chat::kContinueFinalMessage, "The chat template does not show the final message's text");
    return std::nullopt;
  }
  auto pieces = render(reader, model, marked);
  if (pieces) pieces->push_back({without_begun_thought(*pieces, content, model.tool_format), false});
  return pieces;
}

}  // namespace

namespace {

struct ContentText {
  std::string text;
  bool begins_with_mark = false;
  bool ends_with_mark = false;
};

const char* readable(const MediaList* media) {
  if (media == nullptr) return "text is read here, and no media";
  return media->can_see() ? "this model reads text, and images as 'image_url'" : "this model reads text only";
}

// A part's text; errors stay in the message's reader.
std::optional<ContentText> read_content_part(FieldReader& message, const std::string& name, const Json& part,
                                             bool refusals, MediaList* media) {
  if (part.is_string()) return ContentText{part.get<std::string>()};
  const Json* type = part.is_object() && part.contains("type") ? &part["type"] : nullptr;
  const std::string kind = type != nullptr && type->is_string() ? type->get<std::string>() : "";
  const bool refusal = kind == "refusal" && refusals;
  if (kind == "text" || kind == "input_text" || kind == "output_text" || refusal) {
    const char* words = refusal ? "refusal" : "text";
    if (part.contains(words) && part[words].is_string()) return ContentText{part[words].get<std::string>()};
    message.fail(name + "." + words, fmt::format("A content part of type '{}' needs a string '{}'", kind, words));
    return std::nullopt;
  }
  if (!kind.empty()) {
    FieldReader fields(part, message.path(name + "."));
    const std::size_t num_before = media != nullptr ? media->size() : 0;
    auto read = media != nullptr ? read_picture_part(fields, kind, *media) : std::nullopt;
    const bool is_picture = read.has_value();
    if (!read) read = read_file_part(fields, kind, media);
    take_error(message, fields);
    if (fields.error()) return std::nullopt;
    const bool has_marks = media != nullptr && media->size() > num_before;
    if (read) return ContentText{*std::move(read), is_picture, has_marks};
  }
  message.fail(name + ".type",
               kind.empty() ? "A content part needs a 'type'"
                            : fmt::format("Content parts of type '{}' are not supported: {}", kind, readable(media)),
               kind.empty() ? "invalid_value" : "unsupported_content");
  return std::nullopt;
}

}  // namespace

std::optional<std::string> read_content(FieldReader& message, const char* member, bool refusals, MediaList* media) {
  const Json* content = message.find(member);
  if (content == nullptr) return std::nullopt;
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    message.fail(member,
                 fmt::format("Invalid type for '{}': expected a string or an array of parts", message.path(member)),
                 "invalid_type");
    return std::nullopt;
  }
  std::string text;
  bool joins = false;
  for (std::size_t i = 0; i < content->size(); ++i) {
    if (refusals && is_reasoning_part((*content)[i])) continue;
    const std::string name = fmt::format("{}[{}]", member, i);
    const auto part = read_content_part(message, name, (*content)[i], refusals, media);
    if (!part) return std::nullopt;
    if (joins && !part->begins_with_mark) text += '\n';
    text += part->text;
    joins = !part->ends_with_mark;
  }
  return text;
}

std::optional<std::string> read_reasoning_effort(FieldReader& reader, FieldName name, ChatPromptFields& fields) {
  auto effort = reader.word(name, fields::chat::kReasoningEffort.type);
  if (!effort) return effort;
  fields.template_kwargs["reasoning_effort"] = *effort;
  if (!fields.template_kwargs.contains("enable_thinking")) fields.template_kwargs["enable_thinking"] = effort != "none";
  return effort;
}

void read_template_fields(FieldReader& reader, ChatPromptFields& fields) {
  fields.add_special_tokens = reader.boolean(fields::generation::kAddSpecialTokens, false);
  if (const Json* kwargs = reader.object(fields::chat::kChatTemplateKwargs)) fields.template_kwargs = *kwargs;
  for (const auto& [name, value] : fields.template_kwargs.items()) {
    const bool own = name == "messages" || name == "tools" || name == "add_generation_prompt";
    if (own || is_trusted_variable(name)) {
      reader.fail(fields::chat::kChatTemplateKwargs, fmt::format("'chat_template_kwargs' must not set '{}'", name));
    }
  }
  // DeepSeek's name for this switch.
  if (const Json thinking = fields.template_kwargs.value("thinking", Json());
      thinking.is_boolean() && !fields.template_kwargs.contains("enable_thinking"))
    fields.template_kwargs["enable_thinking"] = thinking;
  if (const auto enable = reader.boolean(fields::chat::kEnableThinking))
    fields.template_kwargs["enable_thinking"] = *enable;
  for (const fields::Field& row : {fields::chat::kThinkingTokenBudget, fields::chat::kThinkingBudget}) {
    // vLLM's -1 means no budget.
    if (const auto budget = reader.integer(row); budget && *budget >= 0)
      fields.thinking_budget = static_cast<std::int32_t>(*budget);
  }
  if (const Json* documents = reader.array(fields::chat::kDocuments)) fields.template_kwargs["documents"] = *documents;
  reader.refuse(fields::chat::kChatTemplate);
}

ChatPromptFields read_chat_prompt_fields(FieldReader& reader, std::shared_ptr<MediaList> media) {
  ChatPromptFields fields;
  fields.media = std::move(media);
  if (fields.media) fields.media->read_settings(reader);
  read_messages(reader, fields);
  fields.add_generation_prompt = reader.boolean(fields::chat::kAddGenerationPrompt, true);
  fields.continue_final_message = reader.boolean(fields::chat::kContinueFinalMessage, false);
  if (fields.continue_final_message && reader.has(fields::chat::kAddGenerationPrompt) && fields.add_generation_prompt) {
    reader.fail(fields::chat::kContinueFinalMessage,
                "'continue_final_message' and 'add_generation_prompt' cannot both be true");
  }
  if (fields.continue_final_message) fields.add_generation_prompt = false;
  read_template_fields(reader, fields);
  read_reasoning_effort(reader, fields::chat::kReasoningEffort, fields);
  return fields;
}

std::optional<std::vector<TextPiece>> render_chat(FieldReader& reader, const ServedModel& model,
                                                  const ChatPromptFields& fields) {
  return fields.continue_final_message ? render_continued(reader, model, fields) : render(reader, model, fields);
}

}  // namespace quire
