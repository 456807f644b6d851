#include "server/api/llama/llama_completion_request.h"

#include <fmt/core.h>

#include <algorithm>

#include "server/api/conversation/media_parts.h"
#include "server/api/conversation/media_prompt.h"
#include "server/api/fields/generation.h"
#include "server/api/fields/llama.h"
#include "server/api/generation/generation_fields.h"
#include "server/api/generation/prompt_fit.h"

namespace quire {

namespace {

constexpr const char* kPromptForms = "'prompt' must be a text, token ids, both in turn, or an array of such prompts";
constexpr std::string_view kMediaMarker = "<__media__>";
constexpr std::int64_t kDefaultSeed = 0xFFFFFFFF;  // llama-server's seed for "random"

SamplingParams llama_defaults() {
  SamplingParams sampling;
  sampling.temperature = 0.8F;
  sampling.temperature_last = true;
  sampling.top_k = 40;
  sampling.top_p = 0.95F;
  sampling.min_p = 0.05F;
  sampling.penalty_last_n = 64;
  return sampling;
}

// Reads a prompt that mixes texts and token ids. Special tokens in texts are recognised: a client of this endpoint
// writes the whole prompt, control tokens included.
void add_parts(FieldReader& reader, const Json& parts, const ServedModel& model, std::vector<Prompt>& prompts) {
  Prompt prompt;
  const bool truncated = reader.has(fields::generation::kTruncatePromptTokens);
  const std::int64_t most = truncated ? most_read_tokens(model) : most_counted_tokens(model);
  for (const Json& part : parts) {
    if (std::cmp_greater(prompt.tokens.size(), most)) {
      const Error error = far_too_long(model, most, "prompt");
      return reader.fail(fields::llama::kPrompt, error.message, error.code);
    }
    if (part.is_string()) {
      const TextPiece piece{part.get_ref<const std::string&>(), true};
      const auto tokens = encode_prompt({&piece, 1}, prompt.tokens.empty(), truncated, model, "prompt");
      if (!tokens) return reader.fail(fields::llama::kPrompt, tokens.error().message, tokens.error().code);
      prompt.tokens.insert(prompt.tokens.end(), tokens->begin(), tokens->end());
    } else if (part.is_number_integer() && part >= 0 && part < model.tokenizer->vocab_size()) {
      prompt.tokens.push_back(TokenId{part.get<std::int32_t>()});
    } else {
      return reader.fail(fields::llama::kPrompt, kPromptForms);
    }
  }
  prompt.text = decoded(*model.tokenizer, prompt.tokens, false);
  prompts.push_back(std::move(prompt));
}

// A prompt's text with marks in place of its markers; empty: an error.
std::string marked_text(FieldReader& object, MediaList& media) {
  const auto text = object.string("prompt_string");
  if (!text) object.missing("prompt_string");
  const std::vector<std::string> marks = read_base64_pictures(object, "multimodal_data", media);
  if (object.error()) return "";
  std::string marked;
  std::size_t from = 0;
  std::size_t num_markers = 0;
  for (std::size_t at = text->find(kMediaMarker); at != std::string::npos; at = text->find(kMediaMarker, from)) {
    marked += text->substr(from, at - from);
    if (num_markers < marks.size()) marked += marks[num_markers];
    ++num_markers;
    from = at + kMediaMarker.size();
  }
  if (num_markers != marks.size()) {
    object.fail("multimodal_data", fmt::format("'prompt_string' has {} markers {}, but there are {} images in "
                                               "'multimodal_data'",
                                               num_markers, kMediaMarker, marks.size()));
  }
  return marked + text->substr(from);
}

// Reads prompts of which at least one has pictures.
void read_media_prompts(FieldReader& reader, const Json& prompts, const ServedModel& model, const Call& call,
                        LlamaCompletionRequest& request) {
  const auto media = media_list(model, call);
  media->read_settings(reader);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < prompts.size() && !reader.error(); ++i) {
    const std::string path = prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", i);
    if (prompts[i].is_string()) {
      texts.push_back(prompts[i].get<std::string>());
      continue;
    }
    if (!prompts[i].is_object()) return reader.fail(path, kPromptForms);
    FieldReader object(prompts[i], path + ".");
    texts.push_back(marked_text(object, *media));
    take_error(reader, object);
  }
  if (reader.error() || !media->read_all(reader, Json::array())) return;
  for (const std::string& text : texts) {
    const TextPiece piece{text, true};
    auto encoded = encode_media_prompt({&piece, 1}, true, false, model, "prompt", *media);
    if (!encoded) return reader.fail(encoded.error().param, encoded.error().message, encoded.error().code);
    request.prompts.push_back(
        {media->written(text, kMediaMarker), std::move(encoded->tokens), std::move(encoded->media)});
  }
}

}  // namespace

LlamaCompletionRequest read_llama_fields(FieldReader& reader, const ServedModel& model) {
  LlamaCompletionRequest request;
  request.fields = read_generation_fields(reader, model, llama_defaults());
  reader.refuse_from(fields::kLlamaFields);
  GenerationFields& fields = request.fields;
  request.num_predict = fields.max_tokens.value_or(-1);
  if (fields.sampling.seed == static_cast<std::uint64_t>(kDefaultSeed)) fields.sampling.seed.reset();
  if (const auto count = reader.integer(fields::llama::kNProbs)) request.num_probs = static_cast<std::int32_t>(*count);
  if (request.num_probs > 0) fields.sampling.num_logprobs = request.num_probs;
  request.return_tokens = reader.boolean(fields::llama::kReturnTokens, false);
  request.timings_per_token = reader.boolean(fields::llama::kTimingsPerToken, false);
  request.response_fields = reader.strings(fields::llama::kResponseFields).value_or(std::vector<std::string>{});
  reader.check_accepted(fields::kLlamaFields);
  request.wants_list = fields.num_choices > 1;
  return request;
}

void read_llama_prompts(FieldReader& reader, const ServedModel& model, const Call& call,
                        LlamaCompletionRequest& request) {
  const Json* prompt = reader.find(fields::llama::kPrompt);
  if (prompt == nullptr) return reader.missing(fields::llama::kPrompt);
  if (prompt->is_string()) return add_parts(reader, Json::array({*prompt}), model, request.prompts);
  if (prompt->is_object()) return read_media_prompts(reader, Json::array({*prompt}), model, call, request);
  if (!prompt->is_array()) return reader.fail(fields::llama::kPrompt, kPromptForms, "invalid_type");
  const bool has_ids = std::any_of(prompt->begin(), prompt->end(), [](const Json& part) { return part.is_number(); });
  const bool has_lists = std::any_of(prompt->begin(), prompt->end(), [](const Json& part) { return part.is_array(); });
  if (has_ids && !has_lists) return add_parts(reader, *prompt, model, request.prompts);
  if (prompt->empty() || prompt->size() > kMaxPrompts) {
    return reader.fail(fields::llama::kPrompt, "'prompt' must hold at least one prompt, and not more than a thousand");
  }
  const bool has_objects =
      std::any_of(prompt->begin(), prompt->end(), [](const Json& part) { return part.is_object(); });
  request.wants_list = request.wants_list || prompt->size() > 1;
  if (has_objects) return read_media_prompts(reader, *prompt, model, call, request);
  for (const Json& each : *prompt)
    add_parts(reader, each.is_array() ? each : Json::array({each}), model, request.prompts);
}

void read_infill_prompt(FieldReader& reader, const ServedModel& model, const Call&, LlamaCompletionRequest& request) {
  if (!find_fim_tokens(*model.tokenizer)) {
    return reader.fail(fields::llama::kInputPrefix, "This model has no tokens to fill in the middle",
                       "unsupported_parameter");
  }
  FimText text;
  for (const auto& [name, target] :
       {std::pair(fields::llama::kInputPrefix, &text.before), {fields::llama::kInputSuffix, &text.after}}) {
    auto part = reader.string(name);
    if (!part) return reader.missing(name);
    *target = *std::move(part);
  }
  text.before += reader.string(fields::llama::kPrompt).value_or("");
  if (const Json* files = reader.array(fields::llama::kInputExtra)) {
    for (const Json& file : *files) {
      if (!reader.is_object(fields::llama::kInputExtra, file)) return;
      FieldReader inner(file, "input_extra.");
      auto content = inner.string("text");
      if (!content) inner.missing("text");
      auto name = inner.string("filename").value_or("tmp");
      if (inner.error()) return take_error(reader, inner);
      text.files.push_back({std::move(name), *std::move(content)});
    }
  }
  Prompt prompt;
  prompt.tokens = infill_prompt(model, text, request.fields).value_or(std::vector<TokenId>{});
  prompt.text = decoded(*model.tokenizer, prompt.tokens, false);
  request.prompts.push_back(std::move(prompt));
}

Json llama_settings(const LlamaCompletionRequest& request) {
  const SamplingParams& sampling = request.fields.sampling;
  Json settings{{"n_predict", request.num_predict},
                {"max_tokens", request.num_predict},
                {"seed", sampling.seed.value_or(static_cast<std::uint64_t>(kDefaultSeed))}};
  add_settings(sampling, fields::kFilterRows, settings);
  settings["samplers"] = sampler_names(sampling);
  add_settings(sampling, fields::kPenaltyRows, settings);
  settings["stop"] = request.fields.stop;
  settings["ignore_eos"] = sampling.ignore_eos;
  settings["stream"] = request.fields.stream;
  settings["n_probs"] = request.num_probs;
  return settings;
}

Json llama_default_settings(const ServedModel& model) {
  const Json nothing = Json::object();
  FieldReader reader(nothing);
  LlamaCompletionRequest request;
  request.fields = read_generation_fields(reader, model, llama_defaults());
  return llama_settings(request);
}

}  // namespace quire
