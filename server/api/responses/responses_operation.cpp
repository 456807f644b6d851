#include "server/api/responses/responses_operation.h"

#include <ctime>
#include <utility>

#include "server/api/common/errors.h"
#include "server/api/generation/logprobs.h"
#include "server/api/responses/conversations.h"

namespace quire {

namespace {

// The error's name in the Responses API's list of codes.
const char* response_code(const Error& error) {
  switch (error.kind) {
    case ErrorKind::kInvalidRequest:
    case ErrorKind::kTooLarge: return "invalid_prompt";
    case ErrorKind::kRateLimited: return "rate_limit_exceeded";
    default: return "server_error";
  }
}

}  // namespace

ResponsesOperation::ResponsesOperation(std::shared_ptr<const ServedModel> model, ResponsesRequest request,
                                       ResponseHeader header, const ChatReading& reading, const Call& call)
    : GenerationOperation(std::move(model), request.fields, std::move(header)),
      request_(std::move(request)),
      reader_(reading),
      events_(fields().stream),
      items_(events_, {request_.summarises, request_.returns_reasoning}, request_.tool_table),
      store_(call.responses),
      socket_memory_(call.socket_memory),
      owner_(call.key_name) {
  if (request_.background) background_id_ = ResponsesOperation::header().id;
}

// The last events repeat the whole response, also in a stream.
AnswerSize ResponsesOperation::answer_size() const {
  AnswerSize size = GenerationOperation::answer_size();
  constexpr std::int64_t kTokenText = 8;
  constexpr std::int64_t kEntryText = 90;
  const std::int64_t num_tokens = usage().completion_tokens;
  const std::int64_t num_listed = request_.logprobs ? 1 + fields().sampling.num_logprobs.value_or(0) : 0;
  size.num_text = num_tokens * (kTokenText + num_listed * kEntryText) + request_.num_echo_bytes;
  size.num_kept = 4 * size.num_text;  // size as a JSON tree
  return size;
}

void ResponsesOperation::append_response(const char* type, const Json& body, std::string& out) {
  events_.append(out, type, "\"response\":" + dump_json(body));
}

void ResponsesOperation::begin(std::string& out) {
  const Json body = response(request_.background ? "queued" : "in_progress");
  append_response("response.created", body, out);
  append_response(request_.background ? "response.queued" : "response.in_progress", body, out);
}

void ResponsesOperation::on_delta(std::size_t index, const Delta& delta, std::string& out) {
  if (std::exchange(is_queued_, false) && request_.background) {
    append_response("response.in_progress", response("in_progress"), out);
  }
  const std::vector<OutputDelta> parts = reader_.read(delta.text, delta.tokens.size(), delta.last);
  choices()[index].reasoning_tokens = reader_.num_reasoning_tokens();
  Json logprobs;
  if (request_.logprobs) {
    const auto top = static_cast<std::size_t>(fields().sampling.num_logprobs.value_or(0));
    logprobs = chat_logprobs(*model().tokenizer, delta.logprobs, top, false);
  }
  if (request_.input.asks_compaction) {
    for (const OutputDelta& part : parts)
      summary_ += part.content;
    if (delta.last) items_.add_compaction(std::string(kCompactionMark) + summary_, out);
    return;
  }
  for (const OutputDelta& part : parts)
    items_.add(part, std::exchange(logprobs, nullptr), out);
  if (delta.last) items_.finish(choices()[index].stream.reason() == FinishReason::kLength, out);
}

Json ResponsesOperation::response(const char* status) const {
  Json body{{"id", header().id},
            {"object", "response"},
            {"created_at", header().created},
            {"status", status},
            {"background", request_.background},
            {"completed_at", nullptr},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"model", header().model},
            {"output", items_.items()}};
  body.update(request_.echo);
  return body;
}

Json ResponsesOperation::failed_response(const Error& error) const {
  Json body = response("failed");
  body["error"] = {{"code", response_code(error)}, {"message", error.message}};
  return body;
}

Json ResponsesOperation::whole_response() {
  const bool cut = !choices().empty() && choices().front().stream.reason() == FinishReason::kLength;
  Json body = response(cut ? "incomplete" : "completed");
  if (cut) {
    body["incomplete_details"] = {{"reason", "max_output_tokens"}};
  } else {
    body["completed_at"] = static_cast<std::int64_t>(std::time(nullptr));
  }
  append_usage(body);
  return body;
}

void ResponsesOperation::append_usage(Json& body) const {
  const Usage sum = usage();
  body["usage"] = {{"input_tokens", sum.prompt_tokens},
                   // Cache writes cost nothing: every prompt is kept while memory permits.
                   {"input_tokens_details", {{"cached_tokens", sum.cached_tokens}, {"cache_write_tokens", 0}}},
                   {"output_tokens", sum.completion_tokens},
                   {"output_tokens_details", {{"reasoning_tokens", sum.reasoning_tokens}}},
                   {"total_tokens", sum.prompt_tokens + sum.completion_tokens}};
}

// The items of the output are kept apart from the body, so that they are found without reading it.
StoredResponse ResponsesOperation::stored_response(Json body, const std::string& previous, const Json& input) const {
  constexpr std::string_view kOutput = "\"output\":[]";
  StoredResponse stored{header().id, owner_, previous, {}, store_items(input), items_.ids()};
  stored.output = store_items(body["output"]);
  body["output"] = Json::array();
  stored.body = dump_json(body);
  // No text that stands before it can look like this: quotes in texts are escaped.
  stored.output_at = stored.body.find(kOutput) + kOutput.size() - 1;
  return stored;
}

void ResponsesOperation::store(const Json& body) {
  // Stores the whole conversation in one entry, because a connection keeps only one.
  if (!request_.store && socket_memory_ != nullptr) {
    return socket_memory_->put(stored_response(body, "", request_.conversation_items));
  }
  if (!request_.store || store_ == nullptr) return;
  StoredResponse stored = stored_response(body, request_.previous_response_id, request_.input.items);
  const auto& given = request_.input.item_ids;
  stored.item_ids.insert(stored.item_ids.end(), given.begin(), given.end());
  store_->put(std::move(stored));
}

// The compaction item: the model's summary, after the kept messages of the user.
Json ResponsesOperation::compaction() const {
  std::string summary;
  for (const Json& item : items_.items()) {
    if (item["type"] != "message") continue;
    for (const Json& part : item["content"])
      summary += part["text"].get<std::string>();
  }
  Json output = request_.input.items;
  output.push_back(
      {{"id", make_id("cmp_")}, {"type", "compaction"}, {"encrypted_content", std::string(kCompactionMark) + summary}});
  Json body{{"id", header().id},
            {"object", "response.compaction"},
            {"created_at", header().created},
            {"output", std::move(output)}};
  append_usage(body);
  return body;
}

// The response is stored before its end is sent: a client may continue from it at once.
Json ResponsesOperation::end_response() {
  Json body = whole_response();
  if (store_ != nullptr && !request_.conversation.empty()) {
    append_to_conversation(*store_, request_.conversation, owner_, request_.input.items);
    append_to_conversation(*store_, request_.conversation, owner_, items_.items());
  }
  store(body);
  return body;
}

bool ResponsesOperation::append_part(std::string& out) {
  out += dump_json(request_.compacts ? compaction() : end_response());
  return false;
}

void ResponsesOperation::finish(std::string& out) {
  if (!fields().stream) return GenerationOperation::finish(out);
  const Json body = end_response();
  append_response(body["status"] == "completed" ? "response.completed" : "response.incomplete", body, out);
}

void ResponsesOperation::fail(const Error& error, std::string& out) {
  Json members{{"code", error.code.empty() ? default_code(error.kind) : error.code},
               {"message", error.message},
               {"param", error.param.empty() ? Json(nullptr) : Json(error.param)}};
  // Some clients read an error's members beside its type, as the schema has them, others in one of their own.
  members["error"] = Json::parse(error_body(error))["error"];
  const std::string text = dump_json(members);
  events_.append(out, "error", std::string_view(text).substr(1, text.size() - 2));
  const Json body = failed_response(error);
  if (request_.background) store(body);
  append_response("response.failed", body, out);
}

// A run that dies without memory needs none to be found as failed.
void ResponsesOperation::store_begun() {
  store(failed_response(out_of_memory()));
}

std::string ResponsesOperation::snapshot() const {
  return dump_json(response(is_queued_ ? "queued" : "in_progress"));
}

void ResponsesOperation::cancel(std::string& out) {
  items_.cut(out);
  Json body = response("cancelled");
  append_usage(body);
  store(body);
  append_response("response.incomplete", body, out);
}

}  // namespace quire
