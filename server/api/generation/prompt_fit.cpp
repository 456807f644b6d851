#include "server/api/generation/prompt_fit.h"

#include <fmt/core.h>

#include <algorithm>

namespace quire {

namespace {

// A response with this many entries takes some hundred megabytes while it is built.
constexpr std::int64_t kMaxPromptLogprobEntries = 1 << 18;
// Some tens of milliseconds of a text thread.
constexpr std::int64_t kMostReadTokens = 1 << 17;

std::vector<TokenId> truncated(std::vector<TokenId> tokens, const GenerationFields& fields, const ServedModel& model) {
  if (!fields.truncate_prompt_tokens) return tokens;
  const std::int64_t room = model.max_model_len - std::max(1, fields.max_tokens.value_or(1));
  const std::int64_t keep =
      *fields.truncate_prompt_tokens < 0 ? std::max<std::int64_t>(1, room) : *fields.truncate_prompt_tokens;
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count <= keep) return tokens;
  const auto first = fields.truncate_end ? tokens.begin() + keep : tokens.begin();
  tokens.erase(first, first + (count - keep));
  return tokens;
}

}  // namespace

Result<void> check_prompt_logprobs(std::int64_t num_prompt_tokens, const GenerationFields& fields,
                                   const std::string& param) {
  if (!fields.sampling.num_prompt_logprobs) return {};
  const std::int64_t count = num_prompt_tokens * (*fields.sampling.num_prompt_logprobs + 1);
  if (count <= kMaxPromptLogprobEntries) return {};
  return invalid(fmt::format("'{}' asks for {} log probabilities of {} prompt tokens; at most {} are given at once",
                             param, count, num_prompt_tokens, kMaxPromptLogprobEntries),
                 param);
}

std::int64_t most_counted_tokens(const ServedModel& model) {
  return 2 * model.max_model_len;
}

std::int64_t most_read_tokens(const ServedModel& model) {
  return std::max(kMostReadTokens, most_counted_tokens(model));
}

Error far_too_long(const ServedModel& model, std::int64_t most, const std::string& prompt_param) {
  return invalid(fmt::format("This model's maximum context length is {} tokens. However, the prompt has more than {} "
                             "tokens. Please shorten it.",
                             model.max_model_len, most),
                 prompt_param, "context_length_exceeded")
      .value();
}

Result<std::vector<TokenId>> encode_prompt(std::span<const TextPiece> pieces, bool add_special, bool truncated,
                                           const ServedModel& model, const std::string& prompt_param) {
  const std::int64_t most = truncated ? most_read_tokens(model) : most_counted_tokens(model);
  auto tokens = model.tokenizer->encode_at_most(pieces, add_special, static_cast<std::size_t>(most));
  if (!tokens) return tl::make_unexpected(far_too_long(model, most, prompt_param));
  return *std::move(tokens);
}

Result<FittedPrompt> fit_prompt(std::vector<TokenId> tokens, const GenerationFields& fields, const ServedModel& model,
                                const std::string& prompt_param) {
  FittedPrompt fitted{truncated(std::move(tokens), fields, model)};
  const std::int64_t num_tokens = std::ssize(fitted.tokens);
  if (num_tokens == 0) return invalid("The prompt is empty: it has no tokens", prompt_param);
  const std::int64_t room = model.max_model_len - num_tokens;
  if (room < 1) {
    return invalid(fmt::format("This model's maximum context length is {} tokens. However, the prompt has {} tokens. "
                               "Please shorten it.",
                               model.max_model_len, num_tokens),
                   prompt_param, "context_length_exceeded");
  }
  // An upper bound beyond the context is honoured by the context's end: the choice then finishes with "length".
  fitted.max_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(fields.max_tokens.value_or(kMaxInt32), room));
  return fitted;
}

std::optional<std::vector<TokenId>> infill_prompt(const ServedModel& model, const FimText& text,
                                                  GenerationFields& fields) {
  const auto fim = find_fim_tokens(*model.tokenizer);
  if (!fim) return std::nullopt;
  const std::int64_t context = model.max_model_len;
  const std::int64_t answer = std::min<std::int64_t>(fields.max_tokens.value_or(context / 4), context);
  auto& stops = fields.sampling.stop_token_ids;
  for (const TokenId end : fim->ends) {
    if (std::find(stops.begin(), stops.end(), end) == stops.end()) stops.push_back(end);
  }
  return encode_fim(*model.tokenizer, *fim, text, static_cast<std::size_t>(context - answer));
}

}  // namespace quire
