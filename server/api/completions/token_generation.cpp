#include "server/api/completions/completions.h"

#include "server/api/common/json.h"
#include "server/api/fields/completions.h"
#include "server/api/generation/constraints.h"
#include "server/api/generation/generation_fields.h"
#include "server/api/generation/generation_operation.h"
#include "server/api/generation/logprobs.h"
#include "server/api/generation/prompt_fit.h"

namespace quire {

namespace {

class TokenGeneration final : public GenerationOperation {
 public:
  using GenerationOperation::GenerationOperation;
  void begin(std::string&) override {}

 protected:
  void on_delta(std::size_t index, const Delta& delta, std::string& out) override {
    if (!fields().stream || (delta.tokens.empty() && !delta.last)) return;
    const Choice& choice = choices()[index];
    out += "data: {\"request_id\":" + dump_json(header().id) + ",\"choices\":[";
    out += dump_json({{"index", index},
                      {"logprobs", logprobs_json(delta.logprobs)},
                      {"finish_reason", delta.last ? Json(finish_reason(choice)) : Json()},
                      {"token_ids", delta.last ? returned_ids(delta.tokens, choice) : token_ids_json(delta.tokens)}});
    out += "]";
    append_chunk_end(index, out);
  }
  void on_prompt_logprobs(std::size_t, std::vector<std::optional<TokenLogprob>> logprobs) override {
    prompt_logprobs_ = std::move(logprobs);
  }
  Json usage_chunk() override {
    return Json{{"request_id", header().id}, {"choices", Json::array()}, {"usage", usage_json(usage())}};
  }

  // Appends one choice.
  bool append_part(std::string& out) override {
    out += num_written_ > 0 ? "," : "{\"request_id\":" + dump_json(header().id) + ",\"choices\":[";
    const Choice& choice = choices()[num_written_];
    out += dump_json({{"index", num_written_},
                      {"logprobs", logprobs_json(choice.logprobs)},
                      {"finish_reason", finish_reason(choice)},
                      {"token_ids", returned_ids(choice.tokens, choice)}});
    if (++num_written_ < choices().size()) return true;
    const bool wants_prompt = fields().sampling.num_prompt_logprobs.has_value();
    Json tail{{"prompt_logprobs", wants_prompt ? prompt_logprobs_json(*model().tokenizer, prompt_logprobs_) : Json()},
              {"kv_transfer_params", nullptr},
              {"usage", usage_json(usage())}};
    out += "]" + dump_members(with_transfer(std::move(tail))) + "}";
    return false;
  }

 private:
  Json logprobs_json(std::span<const TokenLogprob> values) const {
    if (!fields().sampling.num_logprobs) return nullptr;
    const auto num_top = static_cast<std::size_t>(*fields().sampling.num_logprobs);
    return Json{{"content", chat_logprobs(*model().tokenizer, values, num_top, fields().tokens_as_ids)}};
  }

  std::size_t num_written_ = 0;  // choices
  std::vector<std::optional<TokenLogprob>> prompt_logprobs_;
};

// In vLLM's form the streaming members stand beside the sampling, not in it.
void read_streaming(FieldReader& reader, GenerationFields& fields) {
  fields.stream = reader.boolean(fields::completions::kStream, false);
  if (const Json* options = reader.object(fields::completions::kStreamOptions); options != nullptr && fields.stream) {
    FieldReader inner(*options, "stream_options.");
    fields.include_usage = inner.boolean("include_usage", false);
    fields.continuous_usage = inner.boolean("continuous_usage_stats", false) && fields.include_usage;
    take_error(reader, inner);
  }
  if (fields.stream && fields.sampling.num_prompt_logprobs)
    reader.fail("sampling_params.prompt_logprobs", "'prompt_logprobs' is not available with 'stream': true",
                "unsupported_parameter");
}

constexpr std::int32_t kDefaultTokens = 16;  // vLLM's

}  // namespace

Result<std::unique_ptr<Operation>> parse_token_generation(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  const Json none = Json::object();
  const Json* given = reader.object(fields::completions::kSamplingParams);
  FieldReader sampling(given != nullptr ? *given : none, "sampling_params.");
  GenerationFields fields = read_generation_fields(sampling, *model);
  if (const auto top = sampling.integer(fields::completions::kLogprobs))
    fields.sampling.num_logprobs = static_cast<std::int32_t>(*top);
  auto grammar = read_constraint(sampling, *model);
  take_error(reader, sampling);
  read_streaming(reader, fields);
  fields.cache_salt = reader.string(fields::completions::kCacheSalt).value_or("");
  fields.priority = static_cast<std::int32_t>(reader.integer(fields::completions::kPriority).value_or(0));
  fields.transfer = read_prefix_transfer(reader);
  const std::string id = reader.string(fields::completions::kRequestId).value_or(call.request_id);
  const auto most = static_cast<std::size_t>(most_counted_tokens(*model));
  const auto ids = reader.integers(fields::completions::kTokenIds, 0, model->tokenizer->vocab_size() - 1, most);
  if (!ids) reader.missing(fields::completions::kTokenIds);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (!fields.to_context_end && !fields.max_tokens) fields.max_tokens = kDefaultTokens;
  std::vector<TokenId> prompt;
  for (const std::int32_t token : *ids)
    prompt.push_back(TokenId{token});
  auto fitted = fit_prompt(std::move(prompt), fields, *model, "token_ids");
  if (!fitted) return tl::make_unexpected(fitted.error());
  const auto bounded = check_prompt_logprobs(static_cast<std::int64_t>(fitted->tokens.size()), fields,
                                             "sampling_params.prompt_logprobs");
  if (!bounded) return tl::make_unexpected(bounded.error());
  auto operation =
      std::make_unique<TokenGeneration>(model, std::move(fields), ResponseHeader{id, call.created, model->name});
  operation->add_prompt(std::move(fitted->tokens), fitted->max_tokens, grammar == nullptr ? nullptr : grammar->grammar,
                        call, false);
  return operation;
}

}  // namespace quire
