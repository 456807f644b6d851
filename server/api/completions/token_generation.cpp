#include "server/api/completions/token_generation.h"

#include "server/api/generation/constraints.h"
#include "server/api/generation/generation_operation.h"
#include "server/api/generation/prefix_transfer.h"
#include "server/api/generation/prompt_fit.h"

namespace quire {

namespace {

class TokenGeneration final : public GenerationOperation {
 public:
  using GenerationOperation::GenerationOperation;
  void begin(std::string&) override {}

 protected:
  void on_delta(std::size_t, const Delta&, std::string&) override {}
  Json usage_chunk() override { return nullptr; }

  // A part is a choice.
  bool append_part(std::string& out) override {
    out += num_written_ > 0 ? "," : "{\"request_id\":" + dump_json(header().id) + ",\"choices\":[";
    const Choice& choice = choices()[num_written_];
    out += dump_json({{"index", num_written_},
                      {"logprobs", nullptr},
                      {"finish_reason", finish_reason(choice)},
                      {"token_ids", returned_ids(choice.tokens, choice)}});
    if (++num_written_ < choices().size()) return true;
    out += "],\"prompt_logprobs\":null,\"kv_transfer_params\":null,\"usage\":" + dump_json(usage_json(usage())) + "}";
    return false;
  }

 private:
  std::size_t num_written_ = 0;  // choices
};

constexpr std::int32_t kDefaultTokens = 16;  // vLLM's

}  // namespace

Result<std::unique_ptr<Operation>> parse_token_generation(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  const Json none = Json::object();
  const Json* given = reader.object("sampling_params");
  FieldReader sampling(given != nullptr ? *given : none, "sampling_params.");
  for (const char* name : {"logprobs", "prompt_logprobs"})
    sampling.refuse(name, "the answer has tokens alone; /v1/completions returns them");
  GenerationFields fields = read_generation_fields(sampling, *model);
  auto grammar = read_constraint(sampling, *model);
  take_error(reader, sampling);
  reader.refuse_unless("stream", false, "the answer is sent when it is complete");
  fields.stream = false;
  fields.cache_salt = reader.string("cache_salt").value_or("");
  fields.priority = static_cast<std::int32_t>(reader.integer("priority", -kMaxInt32, kMaxInt32).value_or(0));
  fields.transfer = read_prefix_transfer(reader);
  const std::string id = reader.short_string("request_id", kMaxHintBytes).value_or(call.request_id);
  const auto most = static_cast<std::size_t>(most_counted_tokens(*model));
  const auto ids = reader.integers("token_ids", 0, model->tokenizer->vocab_size() - 1, most);
  if (!ids) reader.missing("token_ids");
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (!fields.to_context_end && !fields.max_tokens) fields.max_tokens = kDefaultTokens;
  std::vector<TokenId> prompt;
  for (const std::int32_t token : *ids)
    prompt.push_back(TokenId{token});
  auto fitted = fit_prompt(std::move(prompt), fields, *model, "token_ids");
  if (!fitted) return tl::make_unexpected(fitted.error());
  auto operation =
      std::make_unique<TokenGeneration>(model, std::move(fields), ResponseHeader{id, call.created, model->name});
  operation->add_prompt(std::move(fitted->tokens), fitted->max_tokens, grammar == nullptr ? nullptr : grammar->grammar,
                        call, false);
  return operation;
}

}  // namespace quire
