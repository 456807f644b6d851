#include "server/api/generation/generation_operation.h"

#include <algorithm>

#include "server/api/common/errors.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

Json usage_json(const Usage& usage) {
  return Json{{"prompt_tokens", usage.prompt_tokens},
              {"completion_tokens", usage.completion_tokens},
              {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
              {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
              {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json token_ids_json(std::span<const TokenId> tokens) {
  Json list = Json::array();
  for (const TokenId token : tokens)
    list.push_back(token.value);
  return list;
}

GenerationOperation::GenerationOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields,
                                         ResponseHeader header)
    : model_(std::move(model)), fields_(std::move(fields)), header_(std::move(header)) {
  queue_ = model_->queue;
  streams_ = fields_.stream;
  ping_interval_ = fields_.ping_interval;
  engine_id_ = fields_.request_id.empty() ? header_.id : make_id("req-");
}

void GenerationOperation::add_prompt(std::vector<TokenId> prompt, std::int32_t max_tokens,
                                     std::shared_ptr<const Grammar> grammar, const Call& call, bool at_text_start,
                                     std::vector<MediaRun> media) {
  auto request = std::make_shared<Request>();
  request->id = engine_id_ + "-" + std::to_string(requests_.size());
  request->key_name = call.key_name;
  request->is_background = call.is_background;
  request->is_retained = fields_.is_retained;
  request->cache_salt = fields_.cache_salt;
  request->adapter = model_->adapter;
  request->speculation = fields_.speculation;
  request->prompt = std::move(prompt);
  request->media = std::move(media);
  request->sampling = fields_.sampling;
  request->sampling.max_tokens = max_tokens;
  request->sampling.min_tokens = std::min(request->sampling.min_tokens, max_tokens);
  request->num_choices = fields_.num_choices;
  request->reports_progress = fields_.return_progress;
  request->priority = fields_.priority.value_or(call.usual_priority);
  request->slot = fields_.slot;
  request->transfer = fields_.transfer;
  request->grammar = std::move(grammar);
  request->arrival = call.arrival;
  if (fields_.timeout) request->deadline = call.arrival + *fields_.timeout;
  requests_.push_back(std::move(request));
  cached_tokens_.push_back(0);
  const ChoiceStreamOptions options{fields_.stop, fields_.include_stop_in_output, fields_.skip_special_tokens,
                                    at_text_start};
  for (std::int32_t i = 0; i < fields_.num_choices; ++i) {
    choices_.emplace_back(ChoiceStream(*model_->tokenizer, options));
  }
}

Wanted GenerationOperation::on_event(std::size_t index, OutputEvent event, std::string& out) {
  if (!origin_ || event.tokens.size() == 0 || (event.finish && event.finish->error))
    return take_event(index, std::move(event), out);
  // The finish comes with the last token, or in an event of its own if a stop token ended the choice.
  const std::size_t num_tokens = event.tokens.size();
  const bool ends_apart = event.finish && event.finish->stop_token;
  Wanted wanted = Wanted::kMore;
  for (std::size_t i = 0; i < num_tokens + (ends_apart ? 1 : 0) && wanted == Wanted::kMore && !error_; ++i) {
    OutputEvent single{.choice = event.choice};
    single.num_cached_tokens = event.num_cached_tokens;
    if (i < num_tokens) single.tokens.push_back(std::span(event.tokens)[i]);
    if (i < event.logprobs.size()) single.logprobs.push_back(std::move(event.logprobs[i]));
    if (i + 1 == num_tokens + (ends_apart ? 1 : 0)) single.finish = std::move(event.finish);
    wanted = take_event(index, std::move(single), out);
  }
  return wanted;
}

Wanted GenerationOperation::take_event(std::size_t index, OutputEvent event, std::string& out) {
  if (event.finish && event.finish->error) error_ = *event.finish->error;
  if (event.finish && !error_ && event.finish->reason == FinishReason::kError) {
    error_ = Error{ErrorKind::kInternal, "The generation failed", "internal_error", "", std::nullopt};
  }
  if (error_) return Wanted::kNothing;
  cached_tokens_[index] = std::max<std::int64_t>(cached_tokens_[index], event.num_cached_tokens);
  if (event.finish && event.finish->published != nullptr) published_ = event.finish->published;
  if (event.finish)
    cached_tokens_[index] = std::max<std::int64_t>(cached_tokens_[index], event.finish->num_cached_tokens);
  if (!event.prompt_logprobs.empty()) on_prompt_logprobs(index, std::move(event.prompt_logprobs));

  const std::size_t first = index * static_cast<std::size_t>(fields_.num_choices);
  if (event.progress) {
    on_progress(first, progress_json(index, *event.progress), out);
    if (event.tokens.empty() && !event.finish) return Wanted::kMore;
  }
  Choice& choice = choices_[first + static_cast<std::size_t>(event.choice)];
  if (!choice.stream.finished()) {
    const auto before = static_cast<std::size_t>(choice.stream.num_tokens());
    std::string text = choice.stream.push(event);
    if (fields_.prompt_only) text.clear();
    const std::size_t taken = fields_.prompt_only ? 0 : static_cast<std::size_t>(choice.stream.num_tokens()) - before;
    const Delta delta{text, std::span(event.tokens).first(taken),
                      std::span(event.logprobs).first(std::min(taken, event.logprobs.size())),
                      choice.stream.finished()};
    if (!fields_.stream) {
      choice.text += text;
      choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
      choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    }
    on_delta(first + static_cast<std::size_t>(event.choice), delta, out);
  }
  const auto begin = choices_.begin() + static_cast<std::ptrdiff_t>(first);
  const bool over =
      std::all_of(begin, begin + fields_.num_choices, [](const Choice& each) { return each.stream.finished(); });
  if (over) return Wanted::kNothing;
  return choice.stream.stopped_by_text() && !event.finish ? Wanted::kOtherChoices : Wanted::kMore;
}

// The progress object in llama-server's form.
Json GenerationOperation::progress_json(std::size_t index, const PromptProgress& progress) const {
  return Json{{"total", requests_[index]->prompt.size()},
              {"cache", cached_tokens_[index]},
              {"processed", progress.num_computed},
              {"time_ms", std::chrono::duration_cast<std::chrono::milliseconds>(progress.time).count()}};
}

void GenerationOperation::finish(std::string& out) {
  if (!fields_.stream) {
    while (append_part(out))
      ;
    return;
  }
  if (fields_.include_usage || fields_.transfer.publishes) {
    Json chunk = with_transfer(usage_chunk());
    if (!fields_.include_usage) chunk.erase("usage");
    append_sse(out, "", dump_json(chunk));
  }
  append_sse(out, "", "[DONE]");
}

bool GenerationOperation::finish_part(std::string& out) {
  if (fields_.stream) return Operation::finish_part(out);
  const std::size_t before = out.size();
  while (append_part(out)) {
    if (out.size() - before >= kAnswerPart) return true;
  }
  return false;
}

AnswerSize GenerationOperation::answer_size() const {
  AnswerSize size;
  if (fields_.stream) return size;
  constexpr std::int64_t kEntryText = 90;  // JSON bytes for one listed token
  const std::int64_t num_listed = 1 + fields_.sampling.num_logprobs.value_or(0);
  for (const Choice& choice : choices_) {
    const std::int64_t num_logprobs = std::ssize(choice.logprobs);
    size.num_kept += std::ssize(choice.text) + std::ssize(choice.tokens) * static_cast<std::int64_t>(sizeof(TokenId));
    size.num_kept += num_logprobs * (static_cast<std::int64_t>(sizeof(TokenLogprob)) + 8 * num_listed);
    size.num_text += std::ssize(choice.text) + num_logprobs * num_listed * kEntryText;
  }
  if (fields_.sampling.num_prompt_logprobs) {
    for (const auto& request : requests_)
      size.num_text += std::ssize(request->prompt) * (1 + *fields_.sampling.num_prompt_logprobs) * kEntryText;
  }
  return size;
}

void GenerationOperation::fail(const Error& error, std::string& out) {
  append_sse(out, "error", error_body(error));
  append_sse(out, "", "[DONE]");
}

Json GenerationOperation::with_transfer(Json body) const {
  if (fields_.transfer.publishes) body["kv_transfer_params"] = prefix_transfer_json(published_);
  return body;
}

std::string GenerationOperation::chunk_prefix(std::string_view object) const {
  std::string prefix = "data: {\"id\":";
  append_json_string(prefix, header_.id);
  prefix += ",\"object\":";
  append_json_string(prefix, object);
  prefix += ",\"created\":" + std::to_string(header_.created) + ",\"model\":";
  append_json_string(prefix, header_.model);
  return prefix + ",\"system_fingerprint\":\"quire-" QUIRE_VERSION "\",\"choices\":[{\"index\":";
}

void GenerationOperation::append_chunk_end(std::size_t choice, std::string& out) const {
  if (fields_.continuous_usage) {
    out += ",\"usage\":" + dump_json(usage_json(choice_usage(choice)));
  } else if (fields_.include_usage) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

std::int64_t GenerationOperation::completion_tokens(const Choice& choice) const {
  if (fields_.prompt_only) return 0;
  const auto& info = choice.stream.finish_info();
  return info ? std::max(info->num_generated_tokens, choice.stream.num_tokens()) : choice.stream.num_tokens();
}

Usage GenerationOperation::choice_usage(std::size_t index) const {
  const std::size_t request = index / static_cast<std::size_t>(fields_.num_choices);
  return Usage{static_cast<std::int64_t>(requests_[request]->prompt.size()), completion_tokens(choices_[index]),
               cached_tokens_[request], choices_[index].reasoning_tokens};
}

Usage GenerationOperation::usage() const {
  Usage sum;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    sum.prompt_tokens += static_cast<std::int64_t>(requests_[i]->prompt.size());
    sum.cached_tokens += cached_tokens_[i];
  }
  for (const Choice& choice : choices_) {
    sum.completion_tokens += completion_tokens(choice);
    sum.reasoning_tokens += choice.reasoning_tokens;
  }
  return sum;
}

OperationSummary GenerationOperation::summary() const {
  const Usage sum = usage();
  OperationSummary summary{sum.prompt_tokens, sum.cached_tokens, sum.completion_tokens, "", header_.model};
  if (!choices_.empty())
    summary.finish = choices_.front().stream.finished() ? finish_reason(choices_.front()) : "abort";
  const bool has_failed = error_ && (error_->kind == ErrorKind::kInternal || error_->kind == ErrorKind::kNoMemory);
  if (has_failed && !summary.finish.empty()) summary.finish = "error";
  return summary;
}

const char* GenerationOperation::finish_reason(const Choice& choice) const {
  return fields_.prompt_only || choice.stream.reason() == FinishReason::kLength ? "length" : "stop";
}

Json GenerationOperation::returned_ids(std::span<const TokenId> tokens, const Choice& choice) const {
  Json list = token_ids_json(tokens);
  const auto& info = choice.stream.finish_info();
  if (!fields_.prompt_only && info && info->stop_token) list.push_back(info->stop_token->value);
  return list;
}

Json GenerationOperation::stop_reason(const Choice& choice) const {
  if (fields_.prompt_only) return nullptr;
  if (choice.stream.matched_stop()) return *choice.stream.matched_stop();
  const auto& info = choice.stream.finish_info();
  if (!info || !info->stop_token) return nullptr;
  const auto& asked = fields_.sampling.stop_token_ids;
  if (std::find(asked.begin(), asked.end(), *info->stop_token) == asked.end()) return nullptr;
  return info->stop_token->value;
}

}  // namespace quire
