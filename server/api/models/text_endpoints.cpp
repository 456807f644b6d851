#include "server/api/models/text_endpoints.h"

#include <fmt/core.h>

#include <cmath>

#include "core/text/detokenizer.h"
#include "server/api/common/store/item_pages.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/chat_tools.h"
#include "server/api/conversation/media_prompt.h"
#include "server/api/fields/completions.h"
#include "server/api/fields/generation.h"
#include "server/api/fields/tokenizing.h"
#include "server/api/generation/prompt_fit.h"

namespace quire {

namespace {

// The parameters for which the model's files have a default of their own.
Json default_sampling(const GenerationDefaults& defaults) {
  Json json = Json::object();
  const auto add = [&](const char* name, const auto& value) {
    if (value) json[name] = std::round(*value * 1e6) / 1e6;
  };
  add("temperature", defaults.temperature);
  add("top_p", defaults.top_p);
  add("min_p", defaults.min_p);
  add("repetition_penalty", defaults.repetition_penalty);
  if (defaults.top_k) json["top_k"] = *defaults.top_k;
  return json;
}

Json model_json(const TableEntry& model) {
  Json json{{"id", model.name},
            {"object", "model"},
            {"created", model.created},
            {"owned_by", "quire"},
            {"root", model.name},
            {"parent", nullptr},
            {"state", model_state_name(model.state)},
            {"aliases", model.aliases}};
  if (!model.info) return json;  // its file was not opened yet
  json["max_model_len"] = model.max_model_len;
  json["meta"] = {{"architecture", model.info->architecture},
                  {"vocab_size", model.info->vocab_size},
                  {"n_params", model.info->num_parameters},
                  {"size", model.info->file_bytes},
                  {"file_type", model.info->file_type}};
  if (!model.served) return json;
  json["meta"]["default_sampling"] = default_sampling(model.served->defaults);
  json["modalities"] = {{"input", Json::array({"text"})}, {"output", Json::array({"text"})}};
  if (model.served->sight != nullptr) json["modalities"]["input"].push_back("image");
  return json;
}

// The model under the name of one of its adapters.
Json adapted_json(const TableEntry& model, const NamedAdapter& adapter) {
  Json json = model_json(model);
  json["id"] = adapter.name;
  json["parent"] = model.name;
  json["aliases"] = Json::array();
  return json;
}

std::unique_ptr<Operation> ready(const Json& body) {
  return std::make_unique<ReadyOperation>(dump_json(body));
}

// The bound on /detokenize's answer: tokens may be long.
constexpr std::size_t kMaxTextBytes = std::size_t{4} << 20;

// The tokens of a text endpoint's input: vLLM's `prompt`, llama-server's `content`, or a chat's `messages`.
Result<std::vector<TokenId>> tokens_of(FieldReader& reader, const ServedModel& model, const Call& call) {
  if (reader.has(fields::tokenizing::kMessages)) {
    const ChatPromptFields fields = read_chat_prompt_fields(reader, media_list(model, call));
    if (reader.error() || !fields.media->read_all(reader, fields.messages)) return tl::make_unexpected(*reader.error());
    const auto pieces = render_chat(reader, model, fields);
    if (!pieces) return tl::make_unexpected(*reader.error());
    auto encoded = encode_rendered(*pieces, fields, model);
    if (!encoded) return tl::make_unexpected(encoded.error());
    return std::move(encoded->tokens);
  }
  const bool from_content = reader.has(fields::tokenizing::kContent);
  const fields::Field& field = from_content ? fields::tokenizing::kContent : fields::tokenizing::kPrompt;
  const auto text = reader.string(field);
  if (!text) reader.missing(fields::tokenizing::kPrompt);
  // llama-server adds special tokens only when asked to, vLLM unless told not to.
  const bool add_special = reader.boolean(fields::generation::kAddSpecialTokens,
                                          reader.boolean(fields::tokenizing::kAddSpecial, !from_content));
  const bool parse_special = reader.boolean(fields::completions::kParseSpecial, true);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  const TextPiece piece{*text, parse_special};
  return encode_prompt({&piece, 1}, add_special, true, model, std::string(field.name));
}

// A token's own text; bytes that are no text are listed, as llama-server does.
Json piece_json(const Tokenizer& tokenizer, TokenId token) {
  const std::string_view bytes = tokenizer.token_bytes(token);
  const Json text = std::string(bytes);
  if (Json::parse(dump_json(text)) == text) return text;
  Json list = Json::array();
  for (const char c : bytes)
    list.push_back(static_cast<unsigned char>(c));
  return list;
}

}  // namespace

Result<std::unique_ptr<Operation>> list_models(const ModelTable& models, const Call&) {
  Json body{{"object", "list"}, {"data", Json::array()}};
  for (const TableEntry& model : models.entries()) {
    if (model.state == ModelState::kUnloaded) continue;
    body["data"].push_back(model_json(model));
    for (const NamedAdapter& adapter : model.adapters)
      body["data"].push_back(adapted_json(model, adapter));
  }
  return ready(body);
}

Result<std::unique_ptr<Operation>> get_model(const ModelTable& models, const Call& call) {
  const std::size_t at = call.path.find("/models/");
  const std::string_view name = std::string_view(call.path).substr(at + 8);
  const auto model = models.entry(name);
  if (!model) return tl::make_unexpected(model.error());
  const NamedAdapter* const adapter = find_adapter(**model, name);
  return ready(adapter != nullptr ? adapted_json(**model, *adapter) : model_json(**model));
}

Result<std::unique_ptr<Operation>> list_adapters(const ModelTable& models, const Call& call) {
  Json body = Json::array();
  const std::string name = read_query(call.query)["model"];
  const auto model = models.entry(name);
  if (!model && !name.empty()) return tl::make_unexpected(model.error());
  if (!model) return ready(body);
  for (const NamedAdapter& adapter : (*model)->adapters) {
    body.push_back({{"id", body.size()},
                    {"path", adapter.file},
                    {"name", adapter.name},
                    {"scale", 0.0},
                    {"task_name", ""},
                    {"prompt_prefix", ""}});
  }
  return ready(body);
}

Result<std::unique_ptr<Operation>> refuse_scales(const ModelTable&, const Call&) {
  return tl::make_unexpected(Error{ErrorKind::kInvalidRequest,
                                   "Scales are not set for all requests: each asks for its adapter, by its name as "
                                   "'model' or with 'lora': [{\"id\": 0, \"scale\": 1}]",
                                   "unsupported_operation", "", std::nullopt});
}

Result<std::unique_ptr<Operation>> tokenize(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  const bool with_pieces = reader.boolean(fields::tokenizing::kWithPieces, false);
  const bool with_strings = reader.boolean(fields::tokenizing::kReturnTokenStrs, false);
  const auto tokens = tokens_of(reader, *model, call);
  if (!tokens) return tl::make_unexpected(tokens.error());
  const Tokenizer& tokenizer = *model->tokenizer;
  Json list = Json::array();
  Json strings = Json::array();
  for (const TokenId token : *tokens) {
    if (with_strings) strings.push_back(piece_json(tokenizer, token));
    list.push_back(with_pieces ? Json{{"id", token.value}, {"piece", piece_json(tokenizer, token)}}
                               : Json(token.value));
  }
  Json answer{{"count", tokens->size()}, {"max_model_len", model->max_model_len}, {"tokens", std::move(list)}};
  if (with_strings) answer["token_strs"] = std::move(strings);
  return ready(answer);
}

Result<std::unique_ptr<Operation>> detokenize(ModelCall& asked, const Call&) {
  auto& [body, reader, model] = asked;
  const Tokenizer& tokenizer = *model->tokenizer;
  const auto most = static_cast<std::size_t>(most_read_tokens(*model));
  const auto ids = reader.integers(fields::tokenizing::kTokens, 0, tokenizer.vocab_size() - 1, most);
  if (!ids) reader.missing(fields::tokenizing::kTokens);
  const bool skip_special = reader.boolean(fields::tokenizing::kSkipSpecialTokens, true);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  Detokenizer detokenizer(tokenizer, DetokenizerOptions{skip_special, true});
  std::string text;
  for (const std::int32_t id : *ids) {
    text += detokenizer.push(TokenId{id});
    if (text.size() > kMaxTextBytes) return invalid("The text of these tokens is longer than 4 MiB", "tokens");
  }
  text += detokenizer.finish();
  // vLLM's name and llama-server's.
  return ready(Json{{"prompt", text}, {"content", text}});
}

Result<std::unique_ptr<Operation>> apply_template(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  ChatPromptFields fields = read_chat_prompt_fields(reader, media_list(*model, call));
  const ToolFields tools = read_tool_fields(reader);
  fields.tools = tools.tools;
  if (reader.error() || !fields.media->read_all(reader, fields.messages)) return tl::make_unexpected(*reader.error());
  const auto pieces = render_chat(reader, *model, fields);
  if (!pieces) return tl::make_unexpected(*reader.error());
  std::string prompt;
  for (const TextPiece& piece : *pieces)
    prompt += piece.text;
  return ready(Json{{"prompt", fields.media->written(prompt, "<__media__>")}});
}

}  // namespace quire
