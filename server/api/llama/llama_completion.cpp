#include "server/api/llama/llama_completion.h"

#include <algorithm>
#include <chrono>

#include "core/text/chat_template.h"
#include "server/api/common/errors.h"
#include "server/api/common/store/item_pages.h"
#include "server/api/generation/constraints.h"
#include "server/api/generation/generation_operation.h"
#include "server/api/generation/logprobs.h"
#include "server/api/generation/prompt_fit.h"
#include "server/api/llama/llama_completion_request.h"

namespace quire {

namespace {

// "a/b": the member b of the member a; null where there is none.
const Json* member_at(const Json& object, std::string_view path) {
  const std::size_t slash = path.find('/');
  if (!object.is_object()) return nullptr;
  const auto member = object.find(path.substr(0, slash));
  if (member == object.end()) return nullptr;
  return slash == std::string_view::npos ? &*member : member_at(*member, path.substr(slash + 1));
}

// A stream is one event for each step of a choice and, last, its whole result without the text: there is no [DONE].
class LlamaCompletion final : public GenerationOperation {
 public:
  LlamaCompletion(std::shared_ptr<const ServedModel> model, LlamaCompletionRequest request, ResponseHeader header)
      : GenerationOperation(std::move(model), request.fields, std::move(header)),
        request_(std::move(request)),
        settings_(llama_settings(request_)),
        progress_(request_.prompts.size() * static_cast<std::size_t>(request_.fields.num_choices)) {}

  void begin(std::string&) override {}

  void finish(std::string& out) override {
    if (!fields().stream) GenerationOperation::finish(out);
  }

  void fail(const Error& error, std::string& out) override { append_sse(out, "", error_body(error)); }

 protected:
  void on_delta(std::size_t index, const Delta& delta, std::string& out) override {
    Progress& progress = progress_[index];
    progress.last = Clock::now();
    if (!progress.first) progress.first = progress.last;
    progress.has_new_line = progress.has_new_line || delta.text.find('\n') != std::string_view::npos;
    if (!fields().stream) return;
    if (!delta.text.empty() || !delta.tokens.empty()) append_sse(out, "", dump_json(part(index, delta)));
    if (delta.last) append_sse(out, "", dump_json(chosen(result(index))));
  }

  void on_progress(std::size_t index, const Json& progress, std::string& out) override {
    Json body = part(index, {});
    body["prompt_progress"] = progress;
    append_sse(out, "", dump_json(body));
  }

  // Appends the next choice.
  bool append_part(std::string& out) override {
    if (request_.wants_list) out += num_written_ == 0 ? '[' : ',';
    const Choice& choice = choices()[num_written_];
    Json body = result(num_written_);
    body["content"] = choice.text;
    if (request_.return_tokens) body["tokens"] = token_ids_json(choice.tokens);
    if (request_.num_probs > 0) body["completion_probabilities"] = probabilities(choice.logprobs);
    out += dump_json(chosen(std::move(body)));
    if (request_.wants_list && ++num_written_ < choices().size()) return true;
    if (request_.wants_list) out += ']';
    return false;
  }

  Json usage_chunk() override { return {}; }

 private:
  struct Progress {
    std::optional<Clock::time_point> first;
    Clock::time_point last;
    bool has_new_line = false;
  };

  std::size_t prompt_of(std::size_t index) const { return index / static_cast<std::size_t>(fields().num_choices); }

  Json part(std::size_t index, const Delta& delta) const {
    Json body{{"index", index},
              {"content", delta.text},
              {"tokens", token_ids_json(delta.tokens)},
              {"stop", false},
              {"id_slot", -1},
              {"tokens_predicted", choice_usage(index).completion_tokens},
              {"tokens_evaluated", choice_usage(index).prompt_tokens}};
    if (request_.num_probs > 0) body["completion_probabilities"] = probabilities(delta.logprobs);
    if (request_.timings_per_token) body["timings"] = timings(index);
    return body;
  }

  // The result object; a stream has sent content and tokens already.
  Json result(std::size_t index) const {
    const Choice& choice = choices()[index];
    const Usage usage = choice_usage(index);
    const bool limited = choice.stream.reason() == FinishReason::kLength;
    const auto& word = choice.stream.matched_stop();
    return Json{{"index", index},
                {"content", ""},
                {"tokens", Json::array()},
                {"id_slot", -1},
                {"stop", true},
                {"model", header().model},
                {"tokens_predicted", usage.completion_tokens},
                {"tokens_evaluated", usage.prompt_tokens},
                {"generation_settings", settings_},
                {"prompt", request_.prompts[prompt_of(index)].text},
                {"has_new_line", progress_[index].has_new_line},
                {"truncated", limited && usage.completion_tokens != request_.num_predict},
                {"stop_type", word      ? "word"
                              : limited ? "limit"
                                        : "eos"},
                {"stopping_word", word.value_or("")},
                {"tokens_cached", usage.prompt_tokens + usage.completion_tokens},
                {"timings", timings(index)}};
  }

  // The engine's times; if a stop string ended the text before the engine did, the times of the events.
  Json timings(std::size_t index) const {
    const Usage usage = choice_usage(index);
    const Progress& progress = progress_[index];
    const auto& info = choices()[index].stream.finish_info();
    const auto ms = [](Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
    Json json{{"cache_n", usage.cached_tokens}};
    const auto add = [&json](const std::string& name, std::int64_t count, double time) {
      json[name + "_n"] = count;
      json[name + "_ms"] = time;
      json[name + "_per_token_ms"] = count > 0 ? time / static_cast<double>(count) : 0.0;
      json[name + "_per_second"] = time > 0.0 ? 1e3 * static_cast<double>(count) / time : 0.0;
    };
    const auto waited = *progress.first - requests()[prompt_of(index)]->arrival;
    add("prompt", usage.prompt_tokens - usage.cached_tokens, ms(info ? info->prefill_time : waited));
    add("predicted", usage.completion_tokens, ms(info ? info->decode_time : progress.last - *progress.first));
    return json;
  }

  Json probabilities(std::span<const TokenLogprob> logprobs) const {
    const auto num_top = static_cast<std::size_t>(request_.num_probs);
    Json list = chat_logprobs(*model().tokenizer, logprobs, num_top, false);
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i]["id"] = logprobs[i].token.value;
      Json& top = list[i]["top_logprobs"];
      for (std::size_t j = 0; j < top.size(); ++j)
        top[j]["id"] = logprobs[i].top[j].first.value;
    }
    return list;
  }

  // The members that response_fields names, each under the path that the request used.
  Json chosen(Json result) const {
    if (request_.response_fields.empty()) return result;
    Json some = Json::object();
    for (const std::string& path : request_.response_fields) {
      if (const Json* member = member_at(result, path)) some[path] = *member;
    }
    return some;
  }

  const LlamaCompletionRequest request_;
  const Json settings_;
  std::vector<Progress> progress_;
  std::size_t num_written_ = 0;  // choices of a whole response
};

using PromptReader = void (*)(FieldReader& reader, const ServedModel& model, const Call& call,
                              LlamaCompletionRequest& request);

Result<std::unique_ptr<Operation>> parse_with(PromptReader read_prompt, ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  LlamaCompletionRequest request = read_llama_fields(reader, *model);
  read_prompt(reader, *model, call, request);
  auto grammar = read_constraint(reader, *model);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  std::vector<FittedPrompt> prompts;
  std::vector<std::vector<MediaRun>> media;
  for (Prompt& prompt : request.prompts) {
    const std::size_t num_tokens = prompt.tokens.size();
    auto fitted = fit_prompt(std::move(prompt.tokens), request.fields, *model, "prompt");
    if (!fitted) return tl::make_unexpected(fitted.error());
    if (!prompt.media.empty() && fitted->tokens.size() < num_tokens)
      return invalid("A prompt with images is not cut", "truncate_prompt_tokens");
    media.push_back(std::move(prompt.media));
    prompts.push_back(*std::move(fitted));
  }
  ResponseHeader header{response_id("cmpl-", request.fields), call.created, model->name};
  auto operation = std::make_unique<LlamaCompletion>(model, std::move(request), std::move(header));
  for (std::size_t i = 0; i < prompts.size(); ++i)
    operation->add_prompt(std::move(prompts[i].tokens), prompts[i].max_tokens,
                          grammar == nullptr ? nullptr : grammar->grammar, call, false, std::move(media[i]));
  return operation;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_llama_completion(ModelCall& asked, const Call& call) {
  return parse_with(&read_llama_prompts, asked, call);
}

Result<std::unique_ptr<Operation>> parse_infill(ModelCall& asked, const Call& call) {
  return parse_with(&read_infill_prompt, asked, call);
}

Result<std::unique_ptr<Operation>> llama_props(const ModelTable& models, const Call& call) {
  const auto found = models.entry(read_query(call.query)["model"]);
  if (!found) return tl::make_unexpected(found.error());
  const auto& model = (*found)->served;
  if (!model)
    return tl::make_unexpected(Error{ErrorKind::kUnavailable, "The model is not ready", "model_not_ready", "", {}});
  Json settings = llama_default_settings(*model);
  return std::make_unique<ReadyOperation>(dump_json(
      Json{{"default_generation_settings", {{"n_ctx", model->max_model_len}, {"params", std::move(settings)}}},
           {"total_slots", model->max_num_choices},
           {"model_alias", model->name},
           {"model_path", model->name},
           {"chat_template", model->chat_template ? model->chat_template->source() : std::string_view()},
           {"modalities", {{"vision", model->sight != nullptr}, {"audio", false}}},
           {"build_info", "quire-" QUIRE_VERSION}}));
}

}  // namespace quire
