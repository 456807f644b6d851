#include "server/api/ollama/ollama_operation.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/api/common/errors.h"
#include "server/api/common/json.h"
#include "server/api/generation/logprobs.h"

namespace quire {

namespace {

std::int64_t nanoseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)), micros);
}

// A call of this API has its arguments as an object.
Json call_json(const ToolCallDelta& call) {
  auto arguments = parse_json(call.arguments.empty() ? "{}" : call.arguments);
  return Json{{"id", call.id},
              {"function",
               {{"index", call.index},
                {"name", call.name},
                {"arguments", arguments ? std::move(*arguments) : Json::object()}}}};
}

}  // namespace

Json ollama_line(const std::string& model) {
  return Json{{"model", model}, {"created_at", utc_now()}};
}

OllamaOperation::OllamaOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields,
                                 ResponseHeader header, const ChatReading& reading, const OllamaAnswer& answer)
    : GenerationOperation(std::move(model), std::move(fields), std::move(header)), answer_(answer), reader_(reading) {
  stream_form_ = StreamForm::kLines;
}

void OllamaOperation::on_delta(std::size_t index, const Delta& delta, std::string& out) {
  last_ = Clock::now();
  if (!first_) first_ = last_;
  std::vector<OutputDelta> parts = reader_.read(delta.text, delta.tokens.size(), delta.last);
  choices()[index].reasoning_tokens = reader_.num_reasoning_tokens();
  if (!answer_.is_chat) tokens_.insert(tokens_.end(), delta.tokens.begin(), delta.tokens.end());
  if (fields().stream) {
    bool has_logprobs = answer_.logprobs && !delta.logprobs.empty();
    for (const OutputDelta& read : parts) {
      if (read.empty() && !has_logprobs) continue;
      Json line = part(read);
      line["done"] = false;
      if (std::exchange(has_logprobs, false)) line["logprobs"] = logprobs_of(delta.logprobs);
      out += dump_json(line) + "\n";
    }
    return;
  }
  for (OutputDelta& read : parts) {
    whole_.content += read.content;
    whole_.reasoning += read.reasoning;
    std::move(read.tool_calls.begin(), read.tool_calls.end(), std::back_inserter(whole_.tool_calls));
  }
}

Json OllamaOperation::logprobs_of(std::span<const TokenLogprob> values) const {
  return chat_logprobs(*model().tokenizer, values, answer_.top_logprobs, false);
}

Json OllamaOperation::part(const OutputDelta& delta) const {
  Json line = ollama_line(header().model);
  if (!answer_.is_chat) {
    line["response"] = delta.content;
    if (!delta.reasoning.empty()) line["thinking"] = delta.reasoning;
    return line;
  }
  Json message{{"role", "assistant"}, {"content", delta.content}};
  if (!delta.reasoning.empty()) message["thinking"] = delta.reasoning;
  for (const ToolCallDelta& call : delta.tool_calls)
    message["tool_calls"].push_back(call_json(call));
  line["message"] = std::move(message);
  return line;
}

// The engine's times; if a stop string ended the text before the engine did, the times of the events.
void OllamaOperation::add_end(Json& line) const {
  const Choice& choice = choices().front();
  const auto& info = choice.stream.finish_info();
  const Clock::time_point arrival = requests().front()->arrival;
  const Clock::time_point first = first_.value_or(answer_.ready);
  const Usage sum = usage();
  line["done"] = true;
  line["done_reason"] = finish_reason(choice);
  if (!answer_.is_chat && requests().front()->media.empty()) {
    line["context"] = token_ids_json(requests().front()->prompt);
    for (const Json& id : returned_ids(tokens_, choice))
      line["context"].push_back(id);
  }
  line["total_duration"] = nanoseconds(Clock::now() - arrival);
  line["load_duration"] = nanoseconds(answer_.ready - arrival);
  line["prompt_eval_count"] = sum.prompt_tokens;
  line["prompt_eval_duration"] = nanoseconds(info ? info->prefill_time : first - answer_.ready);
  line["eval_count"] = sum.completion_tokens;
  line["eval_duration"] = nanoseconds(info ? info->decode_time : last_ - first);
}

bool OllamaOperation::append_part(std::string& out) {
  constexpr std::size_t kTokens = 64;  // log probabilities of a part
  const auto& logprobs = choices().front().logprobs;
  if (num_written_ == 0) out += dump_opened(part(whole_));
  if (answer_.logprobs) {
    out += num_written_ == 0 ? ",\"logprobs\":[" : ",";
    const auto left = std::span(logprobs).subspan(num_written_);
    const auto some = left.first(std::min(kTokens, left.size()));
    append_chat_logprobs(out, *model().tokenizer, some, answer_.top_logprobs, false);
    num_written_ += some.size();
    if (some.size() < left.size()) return true;
    out += ']';
  }
  Json end = Json::object();
  add_end(end);
  out += dump_members(end) + "}";
  return false;
}

Json OllamaOperation::usage_chunk() {
  Json line = part({});
  add_end(line);
  return line;
}

void OllamaOperation::finish(std::string& out) {
  if (!fields().stream) return GenerationOperation::finish(out);
  out += dump_json(usage_chunk()) + "\n";
}

void OllamaOperation::fail(const Error& error, std::string& out) {
  out += error_body(failure_of(error), ErrorForm::kOllama, "") + "\n";
}

}  // namespace quire
