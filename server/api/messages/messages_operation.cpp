#include "server/api/messages/messages_operation.h"

#include "server/api/common/errors.h"

namespace quire {

namespace {

// Anthropic counts a prompt's cached tokens apart from its other ones.
Json anthropic_usage(const Usage& usage) {
  return Json{{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", usage.cached_tokens},
              {"output_tokens", usage.completion_tokens},
              {"output_tokens_details", {{"thinking_tokens", usage.reasoning_tokens}}},
              {"server_tool_use", nullptr}};
}

}  // namespace

MessagesOperation::MessagesOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields,
                                     ResponseHeader header, const ChatReading& reading, bool shows_thinking,
                                     std::string request_id)
    : GenerationOperation(std::move(model), std::move(fields), std::move(header)),
      reader_(reading),
      blocks_(streams_, shows_thinking),
      request_id_(std::move(request_id)) {}

void MessagesOperation::on_delta(std::size_t, const Delta& delta, std::string& out) {
  if (streams_ && !opened_) {
    append_sse(out, "message_start", dump_json(Json{{"type", "message_start"}, {"message", message()}}));
    append_sse(out, "ping", R"({"type":"ping"})");
    opened_ = true;
  }
  for (const OutputDelta& part : reader_.read(delta.text, delta.tokens.size(), delta.last))
    blocks_.add(part, out);
  choices().front().reasoning_tokens = reader_.num_reasoning_tokens();
  if (delta.last) blocks_.finish(out);
}

// The message without its content and its end.
Json MessagesOperation::message() const {
  Json body{{"id", header().id},        {"type", "message"},
            {"role", "assistant"},      {"model", header().model},
            {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}, {"stop_details", nullptr},
            {"container", nullptr},     {"usage", anthropic_usage(usage())}};
  body["usage"]["cache_creation"] = nullptr;
  body["usage"]["service_tier"] = "standard";
  return body;
}

const char* MessagesOperation::anthropic_stop_reason() const {
  const Choice& choice = choices().front();
  if (choice.stream.matched_stop()) return "stop_sequence";
  if (choice.stream.reason() != FinishReason::kLength) return reader_.num_calls() > 0 ? "tool_use" : "end_turn";
  const bool by_context = requests().front()->sampling.max_tokens < fields().max_tokens;
  return by_context ? "model_context_window_exceeded" : "max_tokens";
}

Json MessagesOperation::stop_sequence() const {
  const auto& matched = choices().front().stream.matched_stop();
  return matched ? Json(*matched) : Json(nullptr);
}

bool MessagesOperation::append_part(std::string& out) {
  Json body = message();
  body["content"] = blocks_.take();
  body["stop_reason"] = anthropic_stop_reason();
  body["stop_sequence"] = stop_sequence();
  if (!context_management_.is_null()) body["context_management"] = context_management_;
  out += dump_json(body);
  return false;
}

Json MessagesOperation::usage_chunk() {
  Json chunk{{"type", "message_delta"},
             {"delta",
              {{"stop_reason", anthropic_stop_reason()},
               {"stop_sequence", stop_sequence()},
               {"stop_details", nullptr},
               {"container", nullptr}}},
             {"usage", anthropic_usage(usage())}};
  if (!context_management_.is_null()) chunk["context_management"] = context_management_;
  return chunk;
}

void MessagesOperation::finish(std::string& out) {
  if (!streams_) return GenerationOperation::finish(out);
  append_sse(out, "message_delta", dump_json(usage_chunk()));
  append_sse(out, "message_stop", R"({"type":"message_stop"})");
}

void MessagesOperation::fail(const Error& error, std::string& out) {
  append_sse(out, "error", error_body(failure_of(error), ErrorForm::kAnthropic, request_id_));
}

}  // namespace quire
