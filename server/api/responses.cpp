#include "server/api/responses.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "server/api/chat.h"
#include "server/api/responses_operation.h"

namespace quire {

namespace {

constexpr std::string_view kPath = "/responses/";
constexpr std::string_view kItems = "/input_items";

// A stored response's id and what follows it, from a path like /v1/responses/resp_1/input_items.
struct ResponsePath {
  std::string id;
  std::string rest;
};

ResponsePath split_path(const std::string& path) {
  const std::string tail = path.substr(path.find(kPath) + kPath.size());
  const std::size_t slash = std::min(tail.find('/'), tail.size());
  return {tail.substr(0, slash), tail.substr(slash)};
}

tl::unexpected<Error> not_found(const std::string& id) {
  return failure(ErrorKind::kNotFound, fmt::format("Response with id '{}' not found.", id), "response_not_found");
}

std::unique_ptr<Operation> ready_response(std::string body) {
  return std::make_unique<ReadyOperation>(std::move(body));
}

// The members of a query string, percent-decoded where it matters: names and values here are plain words and ids.
std::map<std::string, std::string> parse_query(std::string_view query) {
  std::map<std::string, std::string> members;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view member = query.substr(0, end);
    const std::size_t equals = std::min(member.find('='), member.size());
    members.emplace(member.substr(0, equals), member.substr(std::min(equals + 1, member.size())));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return members;
}

struct Page {
  std::size_t limit = 20;
  bool ascending = false;
  std::string after;
};

Result<Page> read_page(const std::string& query) {
  Page page;
  for (const auto& [name, value] : parse_query(query)) {
    if (name == "limit") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), page.limit);
      const bool whole = error == std::errc() && end == value.data() + value.size();
      if (!whole || page.limit < 1 || page.limit > 100)
        return invalid("'limit' must be a number between 1 and 100", "limit");
    } else if (name == "order") {
      if (value != "asc" && value != "desc") return invalid("'order' must be 'asc' or 'desc'", "order");
      page.ascending = value == "asc";
    } else if (name == "after") {
      page.after = value;
    }
  }
  return page;
}

// Everything that the response was made from, also what earlier responses brought.
Result<std::unique_ptr<Operation>> list_input_items(const Call& call, const std::string& id) {
  const auto page = read_page(call.query);
  if (!page) return tl::make_unexpected(page.error());
  const auto stored = call.responses->find(id, call.key_name);
  if (stored == nullptr) return not_found(id);
  Json items = stored->previous.empty() ? Json::array()
                                        : items_of(call.responses->conversation(stored->previous, call.key_name));
  const auto own = parse_json(stored->input, 2 * kDefaultJsonDepth);
  if (own) items.insert(items.end(), own->begin(), own->end());
  if (!page->ascending) std::reverse(items.begin(), items.end());
  auto first = items.begin();
  if (!page->after.empty()) {
    first = std::find_if(items.begin(), items.end(), [&](const Json& item) { return item["id"] == page->after; });
    if (first == items.end()) return invalid(fmt::format("Item with id '{}' not found.", page->after), "after");
    ++first;
  }
  const auto left = static_cast<std::size_t>(items.end() - first);
  Json data = Json::array();
  data.insert(data.end(), first, first + static_cast<std::ptrdiff_t>(std::min(left, page->limit)));
  Json list{{"object", "list"}};
  list["first_id"] = data.empty() ? Json("") : Json(data.front()["id"]);
  list["last_id"] = data.empty() ? Json("") : Json(data.back()["id"]);
  list["has_more"] = left > page->limit;
  list["data"] = std::move(data);
  return ready_response(dump_json(list));
}

// Leaves out a conversation's oldest turns, as few as make it fit; the system's message and the last turn stay.
void leave_out_oldest(FieldReader& reader, const ServedModel& model, ResponsesRequest& request) {
  Json& messages = request.prompt.messages;
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i]["role"] == "user") turns.push_back(i);
  }
  if (turns.empty()) return;
  const std::int64_t room = model.max_model_len - request.fields.max_tokens.value_or(1);
  const auto from_turn = [&](std::size_t turn) {
    ChatPromptFields kept = request.prompt;
    kept.messages.erase(kept.messages.begin() + static_cast<std::ptrdiff_t>(turns.front()),
                        kept.messages.begin() + static_cast<std::ptrdiff_t>(turn));
    return kept;
  };
  const auto is_too_long = [&](std::size_t turn) {
    const auto encoded = encode_conversation(reader, model, from_turn(turn), request.tools, request.grammar);
    return encoded && static_cast<std::int64_t>(encoded->prompt.size()) > room;
  };
  const auto first = std::partition_point(turns.begin(), turns.end() - 1, is_too_long);
  request.prompt = from_turn(*first);
}

// What both ways to use a request begin with. Errors stay in the reader.
Result<ResponsesRequest> read_request(FieldReader& reader, const ServedModel& model, const Call& call) {
  ResponsesRequest request = read_responses_request(reader, model, call);
  if (!reader.error() && request.truncates) leave_out_oldest(reader, model, request);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  return request;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_response(const ModelTable& models, const Call& call) {
  const auto body = parse_object(call.body);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  const auto model = models.select(reader);
  if (!model) return tl::make_unexpected(model.error());
  auto request = read_request(reader, **model, call);
  if (!request) return tl::make_unexpected(request.error());
  auto prepared = prepare_chat(reader, **model, request->fields, std::move(request->prompt), request->tools,
                               std::move(request->grammar));
  if (!prepared) return tl::make_unexpected(*reader.error());
  ResponseHeader header{make_id("resp_"), call.created, (*model)->name};
  auto operation =
      std::make_unique<ResponsesOperation>(*model, std::move(*request), std::move(header), prepared->reading, call);
  operation->add_prompt(std::move(prepared->prompt), prepared->max_tokens, std::move(prepared->grammar), call, false);
  return operation;
}

Result<std::unique_ptr<Operation>> count_response_tokens(const ModelTable& models, const Call& call) {
  const auto body = parse_object(call.body);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  const auto model = models.select(reader);
  if (!model) return tl::make_unexpected(model.error());
  auto request = read_request(reader, **model, call);
  if (!request) return tl::make_unexpected(request.error());
  const auto encoded =
      encode_conversation(reader, **model, std::move(request->prompt), request->tools, std::move(request->grammar));
  if (!encoded) return tl::make_unexpected(*reader.error());
  return ready_response(dump_json({{"object", "response.input_tokens"}, {"input_tokens", encoded->prompt.size()}}));
}

Result<std::unique_ptr<Operation>> get_response(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_path(call.path);
  if (call.responses == nullptr || (!rest.empty() && rest != kItems)) return not_found(id);
  if (rest == kItems) return list_input_items(call, id);
  const auto query = parse_query(call.query);
  if (const auto stream = query.find("stream"); stream != query.end() && stream->second != "false")
    return invalid("'stream' is not supported: the events of a response are told once", "stream",
                   "unsupported_parameter");
  const auto stored = call.responses->find(id, call.key_name);
  if (stored == nullptr) return not_found(id);
  return ready_response(stored->body);
}

Result<std::unique_ptr<Operation>> delete_response(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_path(call.path);
  if (!rest.empty() || call.responses == nullptr || !call.responses->erase(id, call.key_name)) return not_found(id);
  return ready_response(dump_json({{"id", id}, {"object", "response"}, {"deleted", true}}));
}

Result<std::unique_ptr<Operation>> cancel_response(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_path(call.path);
  const bool known = call.responses != nullptr && call.responses->find(id, call.key_name) != nullptr;
  if (rest != "/cancel" || !known) return not_found(id);
  return invalid("Only responses that were created with 'background' can be cancelled");
}

}  // namespace quire
