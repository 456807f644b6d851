#include "server/api/chat/chat.h"

#include <fmt/core.h>

#include "server/api/chat/chat_operation.h"
#include "server/api/common/store/item_pages.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/media_list.h"
#include "server/api/conversation/prepared_chat.h"
#include "server/api/fields/chat.h"
#include "server/api/fields/generation.h"
#include "server/api/generation/constraints.h"
#include "server/api/generation/generation_fields.h"
#include "server/api/generation/generation_operation.h"
#include "server/api/generation/prompt_fit.h"

namespace quire {

namespace {

void refuse_chat_fields(FieldReader& reader) {
  reader.refuse_from(fields::kChatFields);
  reader.refuse_from(fields::kNativeFields);
  reader.string(fields::generation::kUser);
  reader.check_accepted(fields::kChatFields);
  reader.check_accepted(fields::kConversationFields);
}

ChatFields read_chat_fields(FieldReader& reader, GenerationFields& fields) {
  ChatFields chat;
  read_retention(reader, fields, false);
  chat.logprobs = reader.boolean(fields::chat::kLogprobs, false);
  const auto top = reader.integer(fields::chat::kTopLogprobs);
  if (top && *top > 0 && !chat.logprobs)
    reader.fail(fields::chat::kTopLogprobs, "'top_logprobs' needs 'logprobs': true");
  if (chat.logprobs) {
    chat.top_logprobs = static_cast<std::size_t>(top.value_or(0));
    fields.sampling.num_logprobs = static_cast<std::int32_t>(chat.top_logprobs);
  }
  if (const auto count = reader.integer(fields::chat::kMaxCompletionTokens)) {
    fields.max_tokens = static_cast<std::int32_t>(*count);
  }
  if (fields.max_tokens == 0) reader.fail(fields::generation::kMaxTokens, "'max_tokens' must be at least 1");
  if (const auto best_of = reader.integer(fields::chat::kBestOf); best_of && *best_of != fields.num_choices) {
    reader.refuse(fields::chat::kBestOf, fields::chat::kBestOf.note);
  }
  chat.include_reasoning = reader.boolean(fields::chat::kIncludeReasoning, true);
  chat.metadata = read_metadata(reader);
  return chat;
}

// Names of the custom tools, whose calls are plain texts.
std::set<std::string, std::less<>> custom_tools(const Json& body) {
  std::set<std::string, std::less<>> names;
  const Json tools = body.value("tools", Json());
  for (const Json& tool : tools.is_array() ? tools : Json::array()) {
    if (!tool.is_object() || tool.value("type", Json()) != "custom") continue;
    const Json custom = tool.value("custom", Json());
    const Json name = custom.is_object() ? custom.value("name", Json()) : Json();
    if (name.is_string()) names.insert(name.get<std::string>());
  }
  return names;
}

void read_store(FieldReader& reader, const Call& call, const Json& body, ChatFields& chat) {
  if (!reader.boolean(fields::chat::kStore, false)) return;
  if (!call.unstored().empty()) return reader.refuse(fields::chat::kStore, call.unstored());
  chat.store = call.responses;
  chat.owner = call.key_name;
  chat.messages = body.value("messages", Json::array());
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_chat(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  GenerationFields fields = read_generation_fields(reader, *model);
  ChatFields chat = read_chat_fields(reader, fields);
  fields.transfer = read_prefix_transfer(reader);
  read_store(reader, call, *body, chat);
  ChatPromptFields prompt = read_chat_prompt_fields(reader, media_list(*model, call));
  const ToolFields tools = read_tool_fields(reader);
  chat.calls_as_functions = tools.as_functions;
  chat.custom_tools = custom_tools(*body);
  refuse_chat_fields(reader);
  auto grammar = read_constraint(reader, *model);
  if (reader.error()) return tl::make_unexpected(*reader.error());

  auto prepared = prepare_chat(reader, *model, fields, std::move(prompt), tools, std::move(grammar));
  if (!prepared) return tl::make_unexpected(*reader.error());
  const auto bounded =
      check_prompt_logprobs(static_cast<std::int64_t>(prepared->prompt.size()), fields, "prompt_logprobs");
  if (!bounded) return tl::make_unexpected(bounded.error());
  auto origin = take_origin(call, *model, 1, fields);
  if (!origin) return tl::make_unexpected(origin.error());
  prepared->reading.id_tail = fields.id_tail;
  ResponseHeader header{response_id(kChatIdPrefix, fields), call.created, model->name};
  auto operation = std::make_unique<ChatOperation>(model, std::move(fields), std::move(header), std::move(chat),
                                                   std::move(prepared->reading));
  if (*origin) operation->set_origin(**std::move(origin));
  operation->add_prompt(std::move(prepared->prompt), prepared->max_tokens, std::move(prepared->grammar), call, false,
                        std::move(prepared->media));
  return operation;
}

Result<std::unique_ptr<Operation>> render_chat_request(ModelCall& asked, const Call& call) {
  return rendered(parse_chat(asked, call), call, false);
}

namespace {

constexpr std::string_view kChats = "/chat/completions/";
constexpr std::string_view kMessages = "/messages";

tl::unexpected<Error> no_such_chat(const std::string& id) {
  return failure(ErrorKind::kNotFound, fmt::format("Chat completion with id '{}' not found.", id), "not_found");
}

// The client chooses the id, which may have slashes.
StoredPath chat_path(const Call& call) {
  StoredPath path{call.path.substr(call.path.find(kChats) + kChats.size()), ""};
  if (path.id.ends_with(kMessages)) {
    path.id.resize(path.id.size() - kMessages.size());
    path.rest = kMessages;
  }
  return path;
}

ResponseStore::Entry find_chat(const Call& call, const std::string& id) {
  const bool is_chat = call.responses != nullptr && id.rfind(kChatIdPrefix, 0) == 0;
  return is_chat ? call.responses->find(id, call.key_name) : nullptr;
}

}  // namespace

Result<std::unique_ptr<Operation>> get_stored_chat(const ModelTable&, const Call& call) {
  const auto [id, rest] = chat_path(call);
  const auto stored = find_chat(call, id);
  if (stored == nullptr) return no_such_chat(id);
  if (rest.empty()) return std::make_unique<ReadyOperation>(stored->body);
  auto page = page_of_stored_items(call.query, stored->input, true, call.limit);
  if (!page) return tl::make_unexpected(std::move(page.error()));
  return std::make_unique<ReadyOperation>(*std::move(page));
}

Result<std::unique_ptr<Operation>> delete_stored_chat(const ModelTable&, const Call& call) {
  const auto [id, rest] = chat_path(call);
  if (!rest.empty() || find_chat(call, id) == nullptr || !call.responses->erase(id, call.key_name))
    return no_such_chat(id);
  return std::make_unique<ReadyOperation>(
      dump_json({{"object", "chat.completion.deleted"}, {"id", id}, {"deleted", true}}));
}

}  // namespace quire
