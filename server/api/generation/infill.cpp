#include "server/api/generation/infill.h"

#include <algorithm>

namespace quire {

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
