#include "server/api/responses/responses.h"

#include <fmt/core.h>

#include "server/api/common/item_pages.h"
#include "server/api/conversation/oldest_turns.h"
#include "server/api/conversation/prepared_chat.h"
#include "server/api/responses/responses_operation.h"

namespace quire {

namespace {

constexpr std::string_view kResponses = "/responses/";
constexpr std::string_view kItems = "/input_items";

tl::unexpected<Error> no_such_response(const std::string& id) {
  return failure(ErrorKind::kNotFound, fmt::format("Response with id '{}' not found.", id), "response_not_found");
}

std::unique_ptr<Operation> ready_response(std::string body) {
  return std::make_unique<ReadyOperation>(std::move(body));
}

ResponseStore::Entry find_response(const Call& call, const std::string& id) {
  const bool is_response = call.responses != nullptr && id.rfind(kResponseIdPrefix, 0) == 0;
  return is_response ? call.responses->find(id, call.key_name) : nullptr;
}

// Everything that the response was made from, also what earlier responses brought.
Result<std::unique_ptr<Operation>> list_input_items(const Call& call, const StoredResponse& stored) {
  Json items = Json::array();
  if (!stored.previous.empty()) items = items_of(call.responses->conversation(stored.previous, call.key_name));
  const auto own = parse_json(stored.input, 2 * kDefaultJsonDepth);
  if (own) items.insert(items.end(), own->begin(), own->end());
  const auto page = page_of_items(call.query, std::move(items), false);
  if (!page) return tl::make_unexpected(page.error());
  return ready_response(dump_json(*page));
}

// What both ways to use a request begin with. Errors stay in the reader.
Result<ResponsesRequest> read_request(FieldReader& reader, const ServedModel& model, const Call& call) {
  ResponsesRequest request = read_responses_request(reader, model, call);
  if (!reader.error() && request.truncates) {
    leave_out_oldest(reader, model, request.fields, request.prompt, request.tools, request.grammar);
  }
  if (reader.error()) return tl::make_unexpected(*reader.error());
  return request;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_response(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  auto request = read_request(reader, *model, call);
  if (!request) return tl::make_unexpected(request.error());
  auto prepared = prepare_chat(reader, *model, request->fields, std::move(request->prompt), request->tools,
                               std::move(request->grammar));
  if (!prepared) return tl::make_unexpected(*reader.error());
  ResponseHeader header{make_id(kResponseIdPrefix), call.created, model->name};
  auto operation =
      std::make_unique<ResponsesOperation>(model, std::move(*request), std::move(header), prepared->reading, call);
  operation->add_prompt(std::move(prepared->prompt), prepared->max_tokens, std::move(prepared->grammar), call, false);
  return operation;
}

Result<std::unique_ptr<Operation>> count_response_tokens(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  auto request = read_request(reader, *model, call);
  if (!request) return tl::make_unexpected(request.error());
  const auto encoded =
      encode_conversation(reader, *model, std::move(request->prompt), request->tools, std::move(request->grammar));
  if (!encoded) return tl::make_unexpected(*reader.error());
  return ready_response(dump_json({{"object", "response.input_tokens"}, {"input_tokens", encoded->prompt.size()}}));
}

Result<std::unique_ptr<Operation>> get_response(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_stored_path(call.path, kResponses);
  const auto stored = find_response(call, id);
  if (stored == nullptr || (!rest.empty() && rest != kItems)) return no_such_response(id);
  if (rest == kItems) return list_input_items(call, *stored);
  const auto query = read_query(call.query);
  if (const auto stream = query.find("stream"); stream != query.end() && stream->second != "false")
    return invalid("'stream' is not supported: the events of a response are told once", "stream",
                   "unsupported_parameter");
  return ready_response(stored->body);
}

Result<std::unique_ptr<Operation>> delete_response(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_stored_path(call.path, kResponses);
  if (!rest.empty() || find_response(call, id) == nullptr || !call.responses->erase(id, call.key_name))
    return no_such_response(id);
  return ready_response(dump_json({{"id", id}, {"object", "response"}, {"deleted", true}}));
}

Result<std::unique_ptr<Operation>> cancel_response(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_stored_path(call.path, kResponses);
  if (rest != "/cancel" || find_response(call, id) == nullptr) return no_such_response(id);
  return invalid("Only responses that were created with 'background' can be cancelled");
}

}  // namespace quire
