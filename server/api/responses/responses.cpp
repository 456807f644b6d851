#include "server/api/responses/responses.h"

#include <fmt/core.h>

#include <charconv>

#include "server/api/common/store/item_pages.h"
#include "server/api/conversation/prepared_chat.h"
#include "server/api/fields/responses.h"
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

// Lists the items that the response was made from, those of earlier responses included.
Result<std::unique_ptr<Operation>> list_input_items(const Call& call, const StoredResponse& stored) {
  StoredItems items;
  if (!stored.previous.empty()) items = items_of(call.responses->conversation(stored.previous, call.key_name));
  items.insert(items.end(), stored.input.begin(), stored.input.end());
  auto page = page_of_stored_items(call.query, std::move(items), false, call.limit);
  if (!page) return tl::make_unexpected(std::move(page.error()));
  return ready_response(*std::move(page));
}

// How many events of its stream the client has; nullopt: it asks for the response itself.
Result<std::optional<std::size_t>> read_replay(const std::string& text) {
  const auto query = read_query(text);
  const auto stream = query.find("stream");
  const auto after = query.find("starting_after");
  const bool is_stream = stream != query.end() && stream->second != "false";
  if (after == query.end()) return is_stream ? std::optional<std::size_t>(0) : std::nullopt;
  if (!is_stream) return invalid("'starting_after' needs 'stream=true'", "starting_after");
  std::uint32_t number = 0;
  const char* const last = after->second.data() + after->second.size();
  const auto [end, error] = std::from_chars(after->second.data(), last, number);
  if (error != std::errc() || end != last) {
    return invalid("'starting_after' must be the sequence_number of an event", "starting_after");
  }
  return std::optional<std::size_t>(std::size_t{number} + 1);
}

constexpr std::int32_t kSummaryTokens = 1024;
constexpr const char* kAskForSummary =
    "Summarize this conversation for a reader who continues it without having seen it: the task and its constraints, "
    "what was decided and done, results of tools that still matter, and what is to be done next. Write the summary "
    "only.";

// Appends the request for a summary to the conversation.
void ask_for_summary(ResponsesRequest& request) {
  Json& messages = request.prompt.messages;
  if (!messages.empty() && messages.back()["role"] == "user") {
    messages.back()["content"] = messages.back()["content"].get<std::string>() + "\n\n" + kAskForSummary;
  } else {
    messages.push_back({{"role", "user"}, {"content", kAskForSummary}});
  }
  if (!request.fields.max_tokens) request.fields.max_tokens = kSummaryTokens;
}

// Keeps the users' latest messages, a quarter of the context of them at four bytes a token.
void keep_users_messages(ResponsesRequest& request, std::int64_t max_context) {
  std::vector<Json> kept;
  std::int64_t num_bytes = 0;
  for (auto item = request.conversation_items.rbegin(); item != request.conversation_items.rend(); ++item) {
    if ((*item)["type"] != "message" || (*item)["role"] != "user") continue;
    num_bytes += static_cast<std::int64_t>(dump_json((*item)["content"]).size());
    if (num_bytes > max_context) break;
    kept.push_back(*item);
  }
  request.input.items = std::vector<Json>(kept.rbegin(), kept.rend());
}

// Reads the body for all endpoints that take it. Errors stay in the reader.
Result<ResponsesRequest> read_request(FieldReader& reader, const ServedModel& model, const Call& call) {
  ResponsesRequest request = read_responses_request(reader, model, call);
  if (!reader.error() && request.truncates) {
    leave_out_oldest(reader, model, request.fields, request.prompt, request.tools, request.grammar);
  }
  if (reader.error()) return tl::make_unexpected(*reader.error());
  return request;
}

Result<std::unique_ptr<Operation>> operation_of(ModelCall& asked, ResponsesRequest request, const Call& call) {
  auto& [body, reader, model] = asked;
  auto prepared = prepare_chat(reader, *model, request.fields, std::move(request.prompt), request.tools,
                               std::move(request.grammar));
  if (!prepared) return tl::make_unexpected(*reader.error());
  if (request.compact_threshold && !request.compacts && std::ssize(prepared->prompt) > *request.compact_threshold) {
    return invalid("The input has " + std::to_string(prepared->prompt.size()) +
                       " tokens, more than 'compact_threshold': it is not compacted while it is answered; POST "
                       "/v1/responses/compact does that",
                   "context_management", "unsupported_parameter");
  }
  ResponseHeader header{make_id(kResponseIdPrefix), call.created, model->name};
  auto operation =
      std::make_unique<ResponsesOperation>(model, std::move(request), std::move(header), prepared->reading, call);
  if (!operation->generates()) return operation;
  operation->add_prompt(std::move(prepared->prompt), prepared->max_tokens, std::move(prepared->grammar), call, false,
                        std::move(prepared->media));
  return operation;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_response(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  auto request = read_request(reader, *model, call);
  if (!request) return tl::make_unexpected(request.error());
  if (request->input.asks_compaction) {
    request->tools = {};
    ask_for_summary(*request);
  }
  return operation_of(asked, *std::move(request), call);
}

Result<std::unique_ptr<Operation>> compact_response(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  reader.refuse_from(fields::kCompactFields);
  auto request = read_request(reader, *model, call);
  if (!request) return tl::make_unexpected(request.error());
  request->compacts = true;
  ask_for_summary(*request);
  keep_users_messages(*request, model->max_model_len);
  return operation_of(asked, *std::move(request), call);
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
  const bool is_items = rest == kItems;
  if (!rest.empty() && !is_items) return no_such_response(id);
  // A running response is stored, too: its input, and an end that it has not come to.
  const auto running = call.background == nullptr ? std::nullopt : call.background->find(id, call.key_name);
  const auto stored = find_response(call, id);
  if (running && running->empty()) return no_such_response(id);
  if (stored == nullptr && (is_items || !running)) return no_such_response(id);
  if (is_items) return list_input_items(call, *stored);
  const auto after = read_replay(call.query);
  if (!after) return tl::make_unexpected(after.error());
  if (*after) return std::make_unique<ReplayOperation>(id, **after);
  return ready_response(running ? *running : stored->whole_body());
}

Result<std::unique_ptr<Operation>> delete_response(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_stored_path(call.path, kResponses);
  if (!rest.empty()) return no_such_response(id);
  const bool was_running = call.background != nullptr && call.background->erase(id, call.key_name);
  const bool was_stored = find_response(call, id) != nullptr && call.responses->erase(id, call.key_name);
  if (!was_running && !was_stored) return no_such_response(id);
  return ready_response(dump_json({{"id", id}, {"object", "response"}, {"deleted", true}}));
}

Result<std::unique_ptr<Operation>> cancel_response(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_stored_path(call.path, kResponses);
  if (rest != "/cancel") return no_such_response(id);
  const auto running = call.background == nullptr ? std::nullopt : call.background->cancel(id, call.key_name);
  if (running && !running->empty()) return ready_response(*running);
  const auto stored = running ? nullptr : find_response(call, id);
  if (stored == nullptr) return no_such_response(id);
  // A response that has already ended is returned unchanged.
  const auto body = parse_json(stored->body, 2 * kDefaultJsonDepth);
  if (body && body->value("background", false)) return ready_response(stored->whole_body());
  return invalid("Only responses that were created with 'background' can be cancelled");
}

}  // namespace quire
