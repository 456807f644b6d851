#include "tests/server/calls/scripted_answer.h"

#include <catch2/catch.hpp>
#include <map>

#include "server/api/chat/chat.h"
#include "server/api/messages/messages.h"
#include "server/api/ollama/ollama.h"
#include "server/api/responses/responses.h"
#include "tests/server/calls/grammar_writer.h"
#include "tests/server/http_client.h"
#include "tests/support/ready_table.h"

namespace quire::test {
namespace {

Endpoint endpoint_of(ChatApi api) {
  switch (api) {
    case ChatApi::kChat: return &parse_chat;
    case ChatApi::kResponses: return &parse_response;
    case ChatApi::kMessages: return &parse_messages;
    case ChatApi::kOllama: return &parse_ollama_chat;
  }
  return nullptr;
}

std::string word(const Json& owner, const char* member) {
  const Json value = owner.value(member, Json());
  return value.is_string() ? value.get<std::string>() : "";
}

void add_call(HeardAnswer& heard, const std::string& name, const Json& arguments) {
  const std::string text = arguments.is_string() ? arguments.get<std::string>() : arguments.dump();
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, false);
  heard.calls.push_back({name, parsed.is_discarded() ? nlohmann::json(text) : std::move(parsed)});
}

void hear_whole(ChatApi api, const Json& body, HeardAnswer& heard) {
  if (api == ChatApi::kChat) {
    const Json& choice = body["choices"][0];
    heard.text += word(choice["message"], "content");
    heard.finish = word(choice, "finish_reason");
    for (const Json& call : choice["message"].value("tool_calls", Json::array()))
      add_call(heard, call["function"]["name"], call["function"]["arguments"]);
  } else if (api == ChatApi::kResponses) {
    heard.finish = word(body, "status");
    for (const Json& item : body["output"]) {
      if (item["type"] == "function_call") add_call(heard, item["name"], item["arguments"]);
      if (item["type"] == "message") heard.text += word(item["content"][0], "text");
    }
  } else if (api == ChatApi::kMessages) {
    heard.finish = word(body, "stop_reason");
    for (const Json& block : body["content"]) {
      if (block["type"] == "tool_use") add_call(heard, block["name"], block["input"]);
      if (block["type"] == "text") heard.text += word(block, "text");
    }
  } else {
    heard.text += word(body["message"], "content");
    if (body.value("done", false)) heard.finish = word(body, "done_reason");
    for (const Json& call : body["message"].value("tool_calls", Json::array()))
      add_call(heard, call["function"]["name"], call["function"]["arguments"]);
  }
}

// The text of a stream's events, put together by index.
class StreamHearing {
 public:
  explicit StreamHearing(ChatApi api) : api_(api) {}

  void take(const Json& event, HeardAnswer& heard) {
    if (api_ == ChatApi::kChat) return chat(event, heard);
    if (api_ == ChatApi::kMessages) return message(event, heard);
    const std::string type = word(event, "type");
    if (type == "response.output_text.delta") heard.text += word(event, "delta");
    if (type == "response.function_call_arguments.delta")
      arguments_[event["output_index"].get<int>()] += word(event, "delta");
    if (type == "response.output_item.added" && event["item"]["type"] == "function_call")
      names_[event["output_index"].get<int>()] = word(event["item"], "name");
    if (type == "response.completed" || type == "response.incomplete") heard.finish = word(event["response"], "status");
  }
  void finish(HeardAnswer& heard) {
    for (const auto& [index, name] : names_)
      add_call(heard, name, arguments_[index].empty() && api_ == ChatApi::kMessages ? "{}" : arguments_[index]);
  }

 private:
  void chat(const Json& event, HeardAnswer& heard) {
    if (event["choices"].empty()) return;
    const Json& choice = event["choices"][0];
    if (choice["finish_reason"].is_string()) heard.finish = choice["finish_reason"];
    heard.text += word(choice["delta"], "content");
    for (const Json& call : choice["delta"].value("tool_calls", Json::array())) {
      const int index = call["index"];
      names_[index] += word(call["function"], "name");
      arguments_[index] += word(call["function"], "arguments");
    }
  }
  void message(const Json& event, HeardAnswer& heard) {
    const std::string type = word(event, "type");
    if (type == "message_delta") heard.finish = word(event["delta"], "stop_reason");
    if (type == "content_block_start" && event["content_block"]["type"] == "tool_use")
      names_[event["index"].get<int>()] = word(event["content_block"], "name");
    if (type != "content_block_delta") return;
    heard.text += word(event["delta"], "text");
    if (event["delta"]["type"] == "input_json_delta")
      arguments_[event["index"].get<int>()] += word(event["delta"], "partial_json");
  }

  ChatApi api_;
  std::map<int, std::string> names_;
  std::map<int, std::string> arguments_;
};

// The part of the text that the grammar lets the model write.
std::string written(const Request& request, const std::string& text, bool is_cut, HeardAnswer& heard) {
  if (request.grammar == nullptr) return text;
  GrammarWriter writer(*request.grammar);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (writer.write(text[i])) continue;
    heard.refused = text.substr(i);
    return text.substr(0, i);
  }
  if (!is_cut && !writer.may_end()) heard.refused = "(end)";
  return text;
}

void run(Operation& operation, const std::string& text, std::size_t tokens_per_event, bool is_cut, std::string& out) {
  if (operation.streams()) operation.begin(out);
  for (std::size_t at = 0;;) {
    OutputEvent event;
    const std::string_view some = std::string_view(text).substr(at, tokens_per_event);
    const Request& request = *operation.requests().front();
    for (const TokenId token : bytes(some)) {
      event.tokens.push_back(token);
      if (request.sampling.num_logprobs) event.logprobs.push_back({token, -0.5F, {{token, -0.5F}}});
    }
    if (at == 0 && request.sampling.num_prompt_logprobs) event.prompt_logprobs.resize(request.prompt.size());
    at += some.size();
    if (at >= text.size()) {
      FinishInfo info;
      info.reason = is_cut ? FinishReason::kLength : FinishReason::kStop;
      info.num_generated_tokens = static_cast<std::int32_t>(text.size()) + (is_cut ? 0 : 1);
      if (!is_cut) info.stop_token = kEos;
      event.finish = info;
    }
    const bool last = event.finish.has_value();
    operation.on_event(0, std::move(event), out);
    if (last) break;
  }
  operation.finish(out);
}

}  // namespace

namespace {

// The operation that answers a request; null if the request is refused.
std::unique_ptr<Operation> begin(const ServedModel& model, Endpoint endpoint, const std::string& body,
                                 RawAnswer& answer) {
  const ModelTable table = ready_table(std::make_shared<const ServedModel>(model));
  auto opened = table.open(body, "");
  if (!opened) answer.error = opened.error();
  if (!opened) return nullptr;
  Call call;
  call.body = body;
  auto& asked = std::get<ModelCall>(*opened);
  auto operation = endpoint(asked, call);
  answer.warnings = asked.reader.take_warnings();
  if (!operation) answer.error = operation.error();
  if (!operation) return nullptr;
  answer.request = (*operation)->requests().at(0);
  return *std::move(operation);
}

}  // namespace

RawAnswer raw_answer(const ServedModel& model, Endpoint endpoint, const std::string& body, const std::string& text) {
  RawAnswer answer;
  const auto operation = begin(model, endpoint, body, answer);
  if (operation != nullptr) run(*operation, text, 1, false, answer.body);
  return answer;
}

HeardAnswer answer_with(const ServedModel& model, ChatApi api, Json body, const std::string& text, bool stream,
                        std::size_t tokens_per_event, bool is_cut) {
  HeardAnswer heard;
  body["model"] = model.name;
  body["stream"] = stream;
  RawAnswer raw;
  const auto operation = begin(model, endpoint_of(api), body.dump(), raw);
  if (raw.error) heard.error = raw.error->message;
  if (operation == nullptr) return heard;
  std::string out;
  run(*operation, written(*raw.request, text, is_cut, heard), tokens_per_event, is_cut, out);
  if (!stream) {
    hear_whole(api, Json::parse(out), heard);
    return heard;
  }
  StreamHearing hearing(api);
  if (api == ChatApi::kOllama) {
    for (std::size_t at = 0; at < out.size();) {
      const std::size_t end = out.find('\n', at);
      hear_whole(api, Json::parse(out.substr(at, end - at)), heard);
      at = end + 1;
    }
    return heard;
  }
  for (const std::string& data : sse_data(out)) {
    if (data != "[DONE]") hearing.take(Json::parse(data), heard);
  }
  hearing.finish(heard);
  return heard;
}

}  // namespace quire::test
