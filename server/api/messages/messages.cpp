#include "server/api/messages/messages.h"

#include "server/api/conversation/prepared_chat.h"
#include "server/api/messages/messages_operation.h"
#include "server/api/messages/messages_request.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_messages(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  MessagesRequest request = read_messages_request(reader, *model, false);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  auto prepared = prepare_chat(reader, *model, request.fields, std::move(request.prompt), request.tools,
                               std::move(request.grammar));
  if (!prepared) return tl::make_unexpected(*reader.error());
  ResponseHeader header{make_id("msg_"), call.created, model->name};
  auto operation = std::make_unique<MessagesOperation>(model, std::move(request.fields), std::move(header),
                                                       prepared->reading, request.shows_thinking, call.request_id);
  operation->add_prompt(std::move(prepared->prompt), prepared->max_tokens, std::move(prepared->grammar), call, false);
  return operation;
}

Result<std::unique_ptr<Operation>> count_message_tokens(ModelCall& asked, const Call&) {
  auto& [body, reader, model] = asked;
  MessagesRequest request = read_messages_request(reader, *model, true);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  const auto prepared =
      encode_conversation(reader, *model, std::move(request.prompt), request.tools, std::move(request.grammar));
  if (!prepared) return tl::make_unexpected(*reader.error());
  return std::make_unique<ReadyOperation>(dump_json(Json{{"input_tokens", prepared->prompt.size()}}));
}

}  // namespace quire
