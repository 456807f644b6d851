#include "server/api/messages/messages.h"

#include <fmt/core.h>

#include <cstdlib>

#include "server/api/conversation/media_list.h"
#include "server/api/conversation/prepared_chat.h"
#include "server/api/fields/messages.h"
#include "server/api/generation/generation_operation.h"
#include "server/api/messages/context_edits.h"
#include "server/api/messages/messages_operation.h"
#include "server/api/messages/messages_request.h"

namespace quire {

namespace {

// Reads the request and applies its context edits. Errors stay in the reader.
MessagesRequest read_edited(FieldReader& reader, const ServedModel& model, const Call& call, bool counts_only) {
  MessagesRequest request = read_messages_request(reader, model, media_list(model, call), counts_only);
  const auto edits = read_context_edits(reader);
  if (!reader.error() && reader.has(fields::messages::kContextManagement))
    request.context_management = apply_context_edits(reader, model, edits, request);
  return request;
}

// Anthropic's clients detect a too long conversation by this text, and shorten it.
Error in_anthropic_words(Error error, const ServedModel& model) {
  if (error.code != "context_length_exceeded") return error;
  std::int64_t num_tokens = 0;
  for (const std::string_view before : {"the prompt has more than ", "the prompt has "}) {
    const std::size_t at = error.message.find(before);
    if (at == std::string::npos) continue;
    num_tokens = std::strtoll(error.message.c_str() + at + before.size(), nullptr, 10);
    break;
  }
  error.message = fmt::format("prompt is too long: {} tokens > {} maximum", num_tokens, model.max_model_len - 1);
  error.param.clear();
  return error;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_messages(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  MessagesRequest request = read_edited(reader, *model, call, false);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  auto prepared = prepare_chat(reader, *model, request.fields, std::move(request.prompt), request.tools,
                               std::move(request.grammar));
  if (!prepared) return tl::make_unexpected(in_anthropic_words(*reader.error(), *model));
  ResponseHeader header{make_id("msg_"), call.created, model->name};
  auto operation = std::make_unique<MessagesOperation>(model, std::move(request.fields), std::move(header),
                                                       prepared->reading, request.shows_thinking, call.request_id);
  operation->set_context_management(std::move(request.context_management));
  operation->add_prompt(std::move(prepared->prompt), prepared->max_tokens, std::move(prepared->grammar), call, false,
                        std::move(prepared->media));
  return operation;
}

Result<std::unique_ptr<Operation>> render_message(ModelCall& asked, const Call& call) {
  return rendered(parse_messages(asked, call), call, false);
}

Result<std::unique_ptr<Operation>> count_message_tokens(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  MessagesRequest request = read_edited(reader, *model, call, true);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  std::int64_t num_cleared = 0;
  if (request.context_management.is_object()) {
    for (const Json& edit : request.context_management["applied_edits"])
      num_cleared += edit["cleared_input_tokens"].get<std::int64_t>();
  }
  const bool has_edits = request.context_management.is_object();
  const auto prepared =
      encode_conversation(reader, *model, std::move(request.prompt), request.tools, std::move(request.grammar));
  if (!prepared) return tl::make_unexpected(*reader.error());
  const auto num_tokens = static_cast<std::int64_t>(prepared->prompt.size());
  Json count{{"input_tokens", num_tokens}};
  if (has_edits) count["context_management"] = {{"original_input_tokens", num_tokens + num_cleared}};
  return std::make_unique<ReadyOperation>(dump_json(count));
}

}  // namespace quire
