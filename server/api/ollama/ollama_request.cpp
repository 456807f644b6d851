#include "server/api/ollama/ollama_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "server/api/conversation/media_parts.h"
#include "server/api/fields/ollama.h"
#include "server/api/generation/prompt_fit.h"

namespace quire {

namespace {

// Ollama's own defaults; those of a model's file come first.
SamplingParams ollama_defaults() {
  SamplingParams sampling;
  sampling.temperature = 0.8F;
  sampling.temperature_last = true;
  sampling.top_k = 40;
  sampling.top_p = 0.9F;
  sampling.repetition_penalty = 1.1F;
  sampling.penalty_last_n = 64;
  return sampling;
}

void read_options(FieldReader& reader, OllamaRequest& request) {
  FieldReader options(ollama_options(reader), "options.");
  options.set_limit(reader.limit());
  request.model = with_num_ctx(options, std::move(request.model));
  options.refuse_from(fields::kOllamaOptions);
  options.check_accepted(fields::kOllamaOptions);
  request.fields = read_generation_fields(options, *request.model, ollama_defaults());
  if (const auto count = options.integer(fields::ollama::kNumPredict); count && *count >= 0)
    request.fields.max_tokens = static_cast<std::int32_t>(*count);
  if (request.fields.max_tokens == 0) options.fail(fields::ollama::kNumPredict, "'options.num_predict' must not be 0");
  take_error(reader, options);
}

void read_think(FieldReader& reader, ChatPromptFields& prompt) {
  const Json* think = reader.find(fields::ollama::kThink);
  if (think == nullptr) return;
  if (think->is_boolean()) {
    prompt.template_kwargs["enable_thinking"] = think->get<bool>();
  } else if (think->is_string()) {
    read_reasoning_effort(reader, fields::ollama::kThink, prompt);
  } else {
    reader.fail(fields::ollama::kThink, "'think' must be true, false or one of 'low', 'medium', 'high'",
                "invalid_type");
  }
}

// "json", or a schema.
void read_format(FieldReader& reader, OllamaRequest& request) {
  const Json* format = reader.find(fields::ollama::kFormat);
  if (format == nullptr || *format == "") return;
  GrammarSpec spec;
  if (format->is_object()) {
    spec.kind = GrammarSpec::Kind::kJsonSchema;
    spec.text = dump_json(*format);
  } else if (*format != "json") {
    return reader.fail(fields::ollama::kFormat, "'format' must be 'json' or a JSON schema");
  }
  if (!reader.error()) request.grammar = compile_constraint(reader, *request.model, "format", spec);
}

OllamaRequest read_common(FieldReader& reader, std::shared_ptr<const ServedModel> model,
                          const fields::FieldTable& table) {
  OllamaRequest request;
  request.model = std::move(model);
  read_options(reader, request);
  request.fields.stream = reader.boolean(fields::ollama::kStream, true);
  request.truncates = reader.boolean(fields::ollama::kTruncate, true);
  reader.check_accepted(table);
  request.logprobs = reader.boolean(fields::ollama::kLogprobs, false);
  const auto top = reader.integer(fields::ollama::kTopLogprobs);
  if (top && *top > 0 && !request.logprobs)
    reader.fail(fields::ollama::kTopLogprobs, "'top_logprobs' needs 'logprobs': true");
  request.top_logprobs = static_cast<std::size_t>(top.value_or(0));
  if (request.logprobs) request.fields.sampling.num_logprobs = static_cast<std::int32_t>(request.top_logprobs);
  read_ollama_hints(reader);
  read_think(reader, request.prompt);
  read_format(reader, request);
  return request;
}

// The marks of the pictures, which stand before the text as Ollama has them.
std::string read_images(FieldReader& reader, MediaList& media) {
  std::string marks;
  for (const std::string& mark : read_base64_pictures(reader, fields::ollama::kImages, media))
    marks += mark;
  return marks;
}

// Converts a message to the form of OpenAI's chats.
Json read_ollama_message(FieldReader& reader, const Json& given, const std::string& path, MediaList& media) {
  FieldReader message(given, path + ".");
  const std::string marks = read_images(message, media);
  take_error(reader, message);
  Json chat = given;
  chat.erase("images");
  if (const auto found = chat.find("thinking"); found != chat.end()) {
    chat["reasoning_content"] = *found;
    chat.erase("thinking");
  }
  if (const auto found = chat.find("tool_name"); found != chat.end()) {
    chat["name"] = *found;
    chat.erase("tool_name");
  }
  if (!chat.contains("content")) chat["content"] = "";
  if (!marks.empty() && chat["content"].is_string()) chat["content"] = marks + chat["content"].get<std::string>();
  return chat;
}

void read_messages_of(FieldReader& reader, const std::shared_ptr<MediaList>& media, OllamaRequest& request) {
  const Json* messages = reader.array(fields::ollama::kMessages);
  Json chat{{"messages", Json::array()}};
  for (const Json& given : messages != nullptr ? *messages : Json::array()) {
    const std::string path = fmt::format("messages[{}]", chat["messages"].size());
    if (!reader.is_object(path, given)) return;
    chat["messages"].push_back(read_ollama_message(reader, given, path, *media));
  }
  if (reader.error()) return;
  if (chat["messages"].empty()) {
    request.loads_only = true;
    return;
  }
  FieldReader translated(chat);
  Json kwargs = std::move(request.prompt.template_kwargs);
  request.prompt = read_chat_prompt_fields(translated);
  take_error(reader, translated);
  if (reader.error()) return;
  request.prompt.template_kwargs = std::move(kwargs);
  request.prompt.media = media;
  const Json& last = request.prompt.messages.back();
  request.prompt.continue_final_message =
      last["role"] == "assistant" && last["content"] != "" && !last.contains("tool_calls");
  request.prompt.add_generation_prompt = !request.prompt.continue_final_message;
}

// Refuses to unload a model: only its operator or a long idle time does that.
void refuse_unloading(FieldReader& reader, const OllamaRequest& request) {
  const Json* time = reader.find(fields::ollama::kKeepAlive);
  if (!request.loads_only || time == nullptr) return;
  if (*time == 0 || *time == "0" || *time == "0s")
    reader.refuse(fields::ollama::kKeepAlive, "a model is unloaded by POST /admin/models/sleep");
}

void read_infill(FieldReader& reader, const std::string& before, OllamaRequest& request) {
  FimText text;
  text.before = before;
  text.after = reader.string(fields::ollama::kSuffix).value_or("");
  request.raw = infill_prompt(*request.model, text, request.fields);
  if (!request.raw) reader.refuse(fields::ollama::kSuffix, "this model has no tokens to fill in the middle");
}

// Reads the prompt of `raw`: no template, and control tokens are recognised.
void read_raw(FieldReader& reader, const std::string& text, OllamaRequest& request) {
  const TextPiece piece{text, true};
  auto tokens = encode_prompt({&piece, 1}, true, false, *request.model, "prompt");
  if (!tokens) return reader.fail(fields::ollama::kPrompt, tokens.error().message, tokens.error().code);
  request.raw = *std::move(tokens);
}

void read_turn(FieldReader& reader, const std::string& text, OllamaRequest& request) {
  Json& messages = request.prompt.messages;
  if (const auto system = reader.string(fields::ollama::kSystem); system && !system->empty())
    messages.push_back({{"role", "system"}, {"content", *system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  request.prompt.param = "prompt";
  const auto before = reader.integers(fields::ollama::kContext, 0, request.model->tokenizer->vocab_size() - 1,
                                      static_cast<std::size_t>(most_counted_tokens(*request.model)));
  for (const std::int32_t id : before.value_or(std::vector<std::int32_t>{}))
    request.context.push_back(TokenId{id});
}

}  // namespace

const Json& ollama_options(FieldReader& reader) {
  static const Json kNone = Json::object();
  const Json* options = reader.object(fields::ollama::kOptions);
  return options != nullptr ? *options : kNone;
}

void read_ollama_hints(FieldReader& reader) {
  const Json* time = reader.find(fields::ollama::kKeepAlive);
  if (time != nullptr && !time->is_string() && !time->is_number())
    reader.fail(fields::ollama::kKeepAlive, "'keep_alive' must be a duration or a number of seconds", "invalid_type");
}

std::shared_ptr<const ServedModel> with_num_ctx(FieldReader& options, std::shared_ptr<const ServedModel> model) {
  const auto most = options.integer(fields::ollama::kNumCtx);
  if (!most || *most >= model->max_model_len) return model;
  auto bounded = std::make_shared<ServedModel>(*model);
  bounded->max_model_len = *most;
  return bounded;
}

OllamaRequest read_ollama_chat(FieldReader& reader, std::shared_ptr<const ServedModel> model,
                               std::shared_ptr<MediaList> media) {
  OllamaRequest request = read_common(reader, std::move(model), fields::kOllamaChatFields);
  if (!reader.error()) read_messages_of(reader, media, request);
  if (!reader.error()) request.tools = read_tool_fields(reader);
  refuse_unloading(reader, request);
  return request;
}

OllamaRequest read_ollama_generate(FieldReader& reader, std::shared_ptr<const ServedModel> model,
                                   std::shared_ptr<MediaList> media) {
  OllamaRequest request = read_common(reader, std::move(model), fields::kOllamaPromptFields);
  const std::string marks = read_images(reader, *media);
  reader.refuse_from(fields::kOllamaPromptFields);
  const std::string text = reader.string(fields::ollama::kPrompt).value_or("");
  const bool is_raw = reader.boolean(fields::ollama::kRaw, false);
  const std::string after = reader.string(fields::ollama::kSuffix).value_or("");
  request.loads_only = text.empty() && after.empty();
  refuse_unloading(reader, request);
  if (reader.error() || request.loads_only) return request;
  if (!marks.empty() && (is_raw || !after.empty()))
    reader.refuse(fields::ollama::kImages, "a prompt that is sent raw, or with a suffix, takes no images");
  request.prompt.media = std::move(media);
  if (!after.empty()) {
    read_infill(reader, text, request);
  } else if (is_raw || request.model->chat_template == nullptr) {
    read_raw(reader, text, request);
  } else {
    read_turn(reader, marks + text, request);
  }
  return request;
}

}  // namespace quire
