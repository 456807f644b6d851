#include "server/api/chat.h"

#include <fmt/core.h>

#include <algorithm>

#include "server/api/chat_prompt.h"
#include "server/api/constraints.h"
#include "server/api/generation_operation.h"
#include "server/api/logprobs.h"

namespace quire {

namespace {

struct ChatFields {
  bool logprobs = false;
  std::size_t top_logprobs = 0;
  Json metadata;
};

class ChatOperation final : public GenerationOperation {
 public:
  ChatOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields, ResponseHeader header,
                ChatFields chat)
      : GenerationOperation(std::move(model), std::move(fields), std::move(header)), chat_(std::move(chat)) {
    prefix_ = "{\"id\":\"" + this->header().id +
              "\",\"object\":\"chat.completion.chunk\",\"created\":" + std::to_string(this->header().created) +
              ",\"model\":";
    append_json_string(prefix_, this->header().model);
    prefix_ += ",\"system_fingerprint\":\"quire-" QUIRE_VERSION "\",\"choices\":[{\"index\":";
  }

  // OpenAI opens every choice with its role.
  void begin(std::string& out) override {
    for (std::size_t i = 0; i < choices().size(); ++i) {
      Json delta{{"role", "assistant"}, {"content", ""}};
      append_chunk(i, dump_json(delta), {}, out);
    }
  }

 protected:
  void on_prompt_logprobs(std::size_t, std::vector<std::optional<TokenLogprob>> logprobs) override {
    prompt_logprobs_ = std::move(logprobs);
  }

  void on_delta(std::size_t index, const Delta& delta, std::string& out) override {
    if (!fields().stream) return;
    const bool wants_tokens = (fields().return_token_ids || chat_.logprobs) && !delta.tokens.empty();
    if (!delta.text.empty() || wants_tokens) {
      scratch_ = "{";
      if (!delta.text.empty()) {
        scratch_ += "\"content\":";
        append_json_string(scratch_, delta.text);
      }
      scratch_ += '}';
      append_chunk(index, scratch_, delta, out);
    }
    if (delta.last) append_last_chunk(index, out);
  }

  Json whole_response() override {
    Json body{
        {"id", header().id}, {"object", "chat.completion"}, {"created", header().created}, {"model", header().model}};
    body["choices"] = Json::array();
    for (std::size_t i = 0; i < choices().size(); ++i)
      body["choices"].push_back(whole_choice(i));
    body["usage"] = usage_json(usage());
    body["system_fingerprint"] = "quire-" QUIRE_VERSION;
    body["service_tier"] = "default";
    if (!chat_.metadata.is_null()) body["metadata"] = chat_.metadata;
    if (fields().sampling.num_prompt_logprobs) {
      body["prompt_logprobs"] = prompt_logprobs_json(*model().tokenizer, prompt_logprobs_);
    }
    if (fields().return_token_ids) body["prompt_token_ids"] = ids(requests().front()->prompt);
    return body;
  }

  Json usage_chunk() override {
    return Json{{"id", header().id},
                {"object", "chat.completion.chunk"},
                {"created", header().created},
                {"model", header().model},
                {"system_fingerprint", "quire-" QUIRE_VERSION},
                {"choices", Json::array()},
                {"usage", usage_json(usage())}};
  }

 private:
  static Json ids(std::span<const TokenId> tokens) {
    Json list = Json::array();
    for (const TokenId token : tokens)
      list.push_back(token.value);
    return list;
  }

  Json logprobs(std::span<const TokenLogprob> values) const {
    return Json{{"content", chat_logprobs(*model().tokenizer, values, chat_.top_logprobs, fields().tokens_as_ids)},
                {"refusal", nullptr}};
  }

  // Chunks are most of what a server writes: they are put together as text, without a JSON tree.
  void append_chunk(std::size_t index, std::string_view delta_json, const Delta& delta, std::string& out) {
    open_chunk(index, delta_json, out);
    if (chat_.logprobs && !delta.tokens.empty()) out += ",\"logprobs\":" + dump_json(logprobs(delta.logprobs));
    out += ",\"finish_reason\":null";
    if (fields().return_token_ids) out += ",\"token_ids\":" + dump_json(ids(delta.tokens));
    close_chunk(index, out);
  }

  void append_last_chunk(std::size_t index, std::string& out) {
    open_chunk(index, "{}", out);
    out += ",\"finish_reason\":\"";
    out += finish_reason(choices()[index]);
    out += "\",\"stop_reason\":" + dump_json(stop_reason(choices()[index]));
    close_chunk(index, out);
  }

  void open_chunk(std::size_t index, std::string_view delta_json, std::string& out) const {
    out += "data: ";
    out += prefix_;
    out += std::to_string(index);
    out += ",\"delta\":";
    out += delta_json;
  }

  void close_chunk(std::size_t index, std::string& out) const {
    out += "}]";
    if (fields().return_token_ids && !sent_prompt_ids_)
      out += ",\"prompt_token_ids\":" + dump_json(ids(requests().front()->prompt));
    sent_prompt_ids_ = true;
    if (fields().continuous_usage) {
      out += ",\"usage\":" + dump_json(usage_json(choice_usage(index)));
    } else if (fields().include_usage) {
      out += ",\"usage\":null";
    }
    out += "}\n\n";
  }

  Json whole_choice(std::size_t index) const {
    const Choice& state = choices()[index];
    Json message{{"role", "assistant"}, {"content", state.text}, {"refusal", nullptr}};
    Json choice{{"index", index}, {"message", std::move(message)}};
    choice["logprobs"] = chat_.logprobs ? logprobs(state.logprobs) : Json(nullptr);
    choice["finish_reason"] = finish_reason(state);
    choice["stop_reason"] = stop_reason(state);
    if (fields().return_token_ids) choice["token_ids"] = ids(state.tokens);
    return choice;
  }

  ChatFields chat_;
  std::string prefix_;
  std::string scratch_;
  mutable bool sent_prompt_ids_ = false;
  std::vector<std::optional<TokenLogprob>> prompt_logprobs_;
};

void refuse_known(FieldReader& reader) {
  reader.refuse("audio", "this model writes text only");
  reader.refuse_unless("modalities", Json::array({"text"}), "this model writes text only");
  reader.refuse("prediction", "predicted outputs are not served");
  reader.refuse("web_search_options", "the server has no web search");
  reader.refuse("moderation", "the server has no moderation model");
  reader.refuse("function_call", "use 'tool_choice'");
  reader.refuse("functions", "use 'tools'");
  reader.refuse_unless("store", false, "chat completions are not stored");
  reader.refuse_unless("verbosity", "medium", "the model has no such control");
  reader.refuse("prompt_cache_retention", "cached prompts live as long as there is room");
  reader.refuse("prompt_cache_options", "cached prompts live as long as there is room");
  reader.word("service_tier", {"auto", "default"});
  for (const char* hint : {"user", "safety_identifier", "prompt_cache_key"})
    reader.string(hint);
}

ChatFields read_chat_fields(FieldReader& reader, GenerationFields& fields) {
  ChatFields chat;
  chat.logprobs = reader.boolean("logprobs", false);
  const auto top = reader.integer("top_logprobs", 0, kMaxLogprobs);
  if (top && *top > 0 && !chat.logprobs) reader.fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  if (chat.logprobs) {
    chat.top_logprobs = static_cast<std::size_t>(top.value_or(0));
    fields.sampling.num_logprobs = static_cast<std::int32_t>(chat.top_logprobs);
  }
  if (const auto count = reader.integer("max_completion_tokens", 1, std::numeric_limits<std::int32_t>::max())) {
    fields.max_tokens = static_cast<std::int32_t>(*count);
  }
  if (fields.max_tokens == 0) reader.fail("max_tokens", "'max_tokens' must be at least 1");
  if (const auto best_of = reader.integer("best_of", 1, 128); best_of && *best_of != fields.num_choices) {
    reader.refuse("best_of", "chat completions return all of their choices");
  }
  reader.refuse_unless("echo", false, "a chat's prompt is not shown");
  if (const Json* metadata = reader.object("metadata")) {
    chat.metadata = *metadata;
    for (const auto& [name, value] : metadata->items()) {
      if (!value.is_string())
        reader.fail("metadata", fmt::format("'metadata.{}' must be a string", name), "invalid_type");
    }
    if (metadata->size() > 16) reader.fail("metadata", "'metadata' has more than 16 members");
  }
  return chat;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_chat(const ModelTable& models, const Call& call) {
  const auto body = parse_object(call.body);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  const auto model = models.select(reader);
  if (!model) return tl::make_unexpected(model.error());
  GenerationFields fields = read_generation_fields(reader, **model);
  ChatFields chat = read_chat_fields(reader, fields);
  const ChatPromptFields prompt_fields = read_chat_prompt_fields(reader);
  reader.refuse_unless("tools", Json::array(), "this build calls no tools");
  refuse_known(reader);
  auto grammar = read_constraint(reader, **model);
  if (reader.error()) return tl::make_unexpected(*reader.error());

  const auto pieces = render_chat(**model, prompt_fields);
  if (!pieces) return tl::make_unexpected(pieces.error());
  std::vector<TokenId> tokens = encode_chat(**model, prompt_fields, *pieces);
  tokens = truncate_prompt(std::move(tokens), fields, **model);
  const auto limit =
      resolve_max_tokens(static_cast<std::int64_t>(tokens.size()), fields.max_tokens, **model, "messages");
  if (!limit) return tl::make_unexpected(limit.error());
  ResponseHeader header{make_id("chatcmpl-"), call.created, (*model)->name};
  auto operation = std::make_unique<ChatOperation>(*model, std::move(fields), std::move(header), std::move(chat));
  operation->add_prompt(std::move(tokens), *limit, std::move(grammar), call, false);
  return operation;
}

}  // namespace quire
