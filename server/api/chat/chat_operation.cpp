#include "server/api/chat/chat_operation.h"

#include <algorithm>

#include "server/api/common/json.h"
#include "server/api/conversation/custom_tools.h"
#include "server/api/generation/logprobs.h"

namespace quire {

namespace {

Json call_entries(const std::vector<ToolCallDelta>& deltas) {
  Json calls = Json::array();
  for (const ToolCallDelta& call : deltas) {
    Json entry{{"index", call.index}};
    Json function = Json::object();
    if (!call.name.empty()) {
      entry["id"] = call.id;
      entry["type"] = "function";
      function["name"] = call.name;
    }
    function["arguments"] = call.arguments;
    entry["function"] = std::move(function);
    calls.push_back(std::move(entry));
  }
  return calls;
}

Json custom_call(const ParsedToolCall& call) {
  return Json{
      {"id", call.id}, {"type", "custom"}, {"custom", {{"name", call.name}, {"input", custom_input(call.arguments)}}}};
}

// The one call of a message with `function_call`.
Json first_call(const std::vector<ToolCallDelta>& deltas) {
  Json function = Json::object();
  std::string arguments;
  for (const ToolCallDelta& call : deltas) {
    if (call.index > 0) continue;
    if (!call.name.empty()) function["name"] = call.name;
    arguments += call.arguments;
  }
  function["arguments"] = std::move(arguments);
  return function;
}

}  // namespace

ChatOperation::ChatOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields, ResponseHeader header,
                             ChatFields chat, ChatReading reading)
    : GenerationOperation(std::move(model), std::move(fields), std::move(header)),
      chat_(std::move(chat)),
      reading_(std::move(reading)) {
  prefix_ = chunk_prefix("chat.completion.chunk");
}

// OpenAI opens every choice with its role.
void ChatOperation::begin(std::string& out) {
  for (std::size_t i = 0; i < choices().size(); ++i) {
    append_chunk(i, R"({"role":"assistant","content":""})", {}, out);
  }
}

ChatOperation::Reader& ChatOperation::reader(std::size_t index) {
  while (readers_.size() <= index)
    readers_.push_back(Reader{ChatReader(reading_), {}, {}});
  return readers_[index];
}

std::vector<OutputDelta> ChatOperation::read(std::size_t index, const Delta& delta) {
  ChatReader& text = reader(index).text;
  std::vector<OutputDelta> read = text.read(delta.text, delta.tokens.size(), delta.last);
  choices()[index].reasoning_tokens = text.num_reasoning_tokens();
  if (chat_.include_reasoning) return read;
  for (OutputDelta& part : read)
    part.reasoning.clear();
  return read;
}

void ChatOperation::on_prompt_logprobs(std::size_t, std::vector<std::optional<TokenLogprob>> logprobs) {
  prompt_logprobs_ = std::move(logprobs);
}

void ChatOperation::on_delta(std::size_t index, const Delta& delta, std::string& out) {
  std::vector<OutputDelta> parts = read(index, delta);
  if (!fields().stream) return reader(index).whole.apply(parts);
  if (chat_.store != nullptr) {
    reader(index).whole.apply(parts);
    Choice& choice = choices()[index];
    choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  }
  for (OutputDelta& part : parts)
    hold_custom(index, part);
  // The first delta carries the event's tokens, even if it has no text.
  const bool wants_tokens = (fields().return_token_ids || chat_.logprobs) && !delta.tokens.empty();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty() && (i > 0 || !wants_tokens)) continue;
    write_delta(parts[i]);
    append_chunk(index, scratch_, i == 0 ? delta : Delta{}, out);
  }
  if (!delta.last) return;
  append_custom(index, out);
  append_last_chunk(index, out);
}

// Holds back a custom tool's call until its end: its input is a member of the arguments.
void ChatOperation::hold_custom(std::size_t index, OutputDelta& delta) {
  if (chat_.custom_tools.empty()) return;
  std::map<std::size_t, ParsedToolCall>& held = reader(index).custom;
  std::vector<ToolCallDelta> shown;
  for (ToolCallDelta& call : delta.tool_calls) {
    if (chat_.custom_tools.count(call.name) != 0) held[call.index] = {call.id, call.name, ""};
    const auto found = held.find(call.index);
    if (found == held.end()) {
      shown.push_back(std::move(call));
    } else {
      found->second.arguments += call.arguments;
    }
  }
  delta.tool_calls = std::move(shown);
}

void ChatOperation::append_custom(std::size_t index, std::string& out) {
  for (const auto& [place, call] : reader(index).custom) {
    Json entry{{"index", place}};
    entry.update(custom_call(call));
    append_chunk(index, dump_json(Json{{"tool_calls", Json::array({std::move(entry)})}}), Delta{}, out);
  }
}

void ChatOperation::on_progress(std::size_t index, const Json& progress, std::string& out) {
  open_chunk(index, "{}", out);
  out += ",\"finish_reason\":null}],\"prompt_progress\":" + dump_json(progress);
  append_chunk_end(index, out);
}

// Writes the delta's JSON to scratch_.
void ChatOperation::write_delta(const OutputDelta& delta) {
  scratch_ = "{";
  const auto member = [this](std::string_view name, std::string_view value) {
    if (scratch_.back() != '{') scratch_ += ',';
    scratch_ += '"';
    scratch_ += name;
    scratch_ += "\":";
    append_json_string(scratch_, value);
  };
  if (!delta.content.empty()) member("content", delta.content);
  if (!delta.reasoning.empty()) {
    // DeepSeek's and vLLM's older name, and vLLM's newer one.
    member("reasoning_content", delta.reasoning);
    member("reasoning", delta.reasoning);
  }
  if (delta.tool_calls.empty()) {
    scratch_ += '}';
    return;
  }
  if (scratch_.back() != '{') scratch_ += ',';
  if (chat_.calls_as_functions) {
    scratch_ += "\"function_call\":" + dump_json(first_call(delta.tool_calls));
  } else {
    scratch_ += "\"tool_calls\":" + dump_json(call_entries(delta.tool_calls));
  }
  scratch_ += '}';
}

Json ChatOperation::logprobs_json(std::span<const TokenLogprob> values) const {
  return Json{{"content", chat_logprobs(*model().tokenizer, values, chat_.top_logprobs, fields().tokens_as_ids)},
              {"refusal", nullptr}};
}

void ChatOperation::append_chunk(std::size_t index, std::string_view delta_json, const Delta& delta, std::string& out) {
  open_chunk(index, delta_json, out);
  if (chat_.logprobs && !delta.tokens.empty()) out += ",\"logprobs\":" + dump_json(logprobs_json(delta.logprobs));
  out += ",\"finish_reason\":null";
  if (fields().return_token_ids) out += ",\"token_ids\":" + dump_json(token_ids_json(delta.tokens));
  close_chunk(index, out);
}

const char* ChatOperation::chat_finish_reason(std::size_t index) const {
  const char* reason = finish_reason(choices()[index]);
  const bool called = index < readers_.size() && readers_[index].text.num_calls() > 0;
  if (!called || std::string_view(reason) != "stop") return reason;
  return chat_.calls_as_functions ? "function_call" : "tool_calls";
}

void ChatOperation::append_last_chunk(std::size_t index, std::string& out) {
  open_chunk(index, "{}", out);
  out += ",\"finish_reason\":\"";
  out += chat_finish_reason(index);
  out += "\",\"stop_reason\":" + dump_json(stop_reason(choices()[index]));
  if (fields().return_token_ids) out += ",\"token_ids\":" + dump_json(returned_ids({}, choices()[index]));
  close_chunk(index, out);
}

void ChatOperation::open_chunk(std::size_t index, std::string_view delta_json, std::string& out) const {
  out += prefix_;
  out += std::to_string(index);
  out += ",\"delta\":";
  out += delta_json;
}

void ChatOperation::close_chunk(std::size_t index, std::string& out) {
  out += "}]";
  if (fields().return_token_ids && !sent_prompt_ids_) {
    out += ",\"prompt_token_ids\":" + dump_json(token_ids_json(requests().front()->prompt));
    sent_prompt_ids_ = true;
  }
  append_chunk_end(index, out);
}

// Messages get ids that are made from the chat's.
void ChatOperation::store(std::string body) {
  std::size_t index = 0;
  for (Json& message : chat_.messages)
    message["id"] = header().id + "-" + std::to_string(index++);
  chat_.store->put({header().id, chat_.owner, "", std::move(body), store_items(chat_.messages), {}});
}

void ChatOperation::finish(std::string& out) {
  if (chat_.store == nullptr) return GenerationOperation::finish(out);
  std::string body;
  while (append_part(body))
    ;
  if (fields().stream) {
    store(std::move(body));
    return GenerationOperation::finish(out);
  }
  out += body;
  store(std::move(body));
}

// A stored chat is made at once, not in parts.
bool ChatOperation::finish_part(std::string& out) {
  return chat_.store == nullptr ? GenerationOperation::finish_part(out) : Operation::finish_part(out);
}

bool ChatOperation::append_part(std::string& out) {
  constexpr std::size_t kTokens = 64;  // log probabilities of a part
  if (num_written_ == 0 && num_tokens_ == 0) {
    out += dump_opened(
        {{"id", header().id}, {"object", "chat.completion"}, {"created", header().created}, {"model", header().model}});
    out += ",\"choices\":[";
  }
  const Choice& choice = choices()[num_written_];
  if (num_tokens_ == 0) append_choice_head(num_written_, out);
  if (chat_.logprobs) {
    if (num_tokens_ > 0) out += ',';
    const std::span<const TokenLogprob> left = std::span(choice.logprobs).subspan(num_tokens_);
    const std::span<const TokenLogprob> some = left.first(std::min(kTokens, left.size()));
    append_chat_logprobs(out, *model().tokenizer, some, chat_.top_logprobs, fields().tokens_as_ids);
    num_tokens_ += some.size();
    if (some.size() < left.size()) return true;
    out += R"(],"refusal":null})";
  }
  out += dump_members(choice_tail(num_written_)) + "}";
  num_tokens_ = 0;
  if (++num_written_ < choices().size()) return true;
  out += "]" + dump_members(with_transfer(response_tail())) + "}";
  return false;
}

// Appends a choice up to its log probabilities, or past their place if there are none.
void ChatOperation::append_choice_head(std::size_t index, std::string& out) const {
  const ParsedOutput& parsed = readers_[index].whole;
  Json message{{"role", "assistant"}};
  message["content"] = parsed.content.empty() && !parsed.tool_calls.empty() ? Json(nullptr) : Json(parsed.content);
  message["refusal"] = nullptr;
  if (!parsed.reasoning.empty()) {
    message["reasoning_content"] = parsed.reasoning;
    message["reasoning"] = parsed.reasoning;
  }
  for (const ParsedToolCall& call : parsed.tool_calls) {
    if (chat_.calls_as_functions) {
      message["function_call"] = {{"name", call.name}, {"arguments", call.arguments}};
      break;
    }
    if (chat_.custom_tools.count(call.name) != 0) {
      message["tool_calls"].push_back(custom_call(call));
      continue;
    }
    message["tool_calls"].push_back(Json{
        {"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (index > 0) out += ',';
  out += dump_opened({{"index", index}, {"message", std::move(message)}});
  out += chat_.logprobs ? R"(,"logprobs":{"content":[)" : R"(,"logprobs":null)";
}

Json ChatOperation::choice_tail(std::size_t index) const {
  const Choice& state = choices()[index];
  Json choice{{"finish_reason", chat_finish_reason(index)}, {"stop_reason", stop_reason(state)}};
  if (fields().return_token_ids) choice["token_ids"] = returned_ids(state.tokens, state);
  return choice;
}

Json ChatOperation::response_tail() const {
  Json body{
      {"usage", usage_json(usage())}, {"system_fingerprint", "quire-" QUIRE_VERSION}, {"service_tier", "default"}};
  if (!chat_.metadata.is_null()) body["metadata"] = chat_.metadata;
  if (fields().sampling.num_prompt_logprobs) {
    body["prompt_logprobs"] = prompt_logprobs_json(*model().tokenizer, prompt_logprobs_);
  }
  if (fields().return_token_ids) body["prompt_token_ids"] = token_ids_json(requests().front()->prompt);
  return body;
}

Json ChatOperation::usage_chunk() {
  return Json{{"id", header().id},
              {"object", "chat.completion.chunk"},
              {"created", header().created},
              {"model", header().model},
              {"system_fingerprint", "quire-" QUIRE_VERSION},
              {"choices", Json::array()},
              {"usage", usage_json(usage())}};
}

}  // namespace quire
