#include "server/api/pooled_operation.h"

#include <fmt/core.h>

#include <cstring>

#include "server/api/base64.h"

namespace quire {

PooledOperation::PooledOperation(const ServedModel& model, std::vector<std::vector<TokenId>> texts,
                                 const PooledWants& wants, const Call& call, std::string_view id_prefix,
                                 PooledRender render)
    : render_(std::move(render)) {
  queue_ = model.queue;
  answer_.id = make_id(id_prefix);
  answer_.created = call.created;
  answer_.model = model.name;
  answer_.outputs.resize(texts.size());
  for (std::vector<TokenId>& text : texts) {
    auto request = std::make_shared<Request>();
    request->id = fmt::format("{}-{}", answer_.id, requests_.size());
    request->key_name = call.key_name;
    request->prompt = std::move(text);
    request->sampling.max_tokens = 1;
    request->pooling = wants.pooling;
    request->pooled_output = wants.output;
    request->scored_tokens = wants.scored_tokens;
    request->arrival = call.arrival;
    answer_.num_tokens += static_cast<std::int64_t>(request->prompt.size());
    requests_.push_back(std::move(request));
  }
}

Wanted PooledOperation::on_event(std::size_t index, OutputEvent event, std::string&) {
  std::vector<float>& output = answer_.outputs[index];
  if (!event.embedding.empty()) output = std::move(event.embedding);
  if (!event.finish) return Wanted::kMore;
  if (event.finish->error) error_ = event.finish->error;
  if (!error_ && output.empty()) {
    error_ = Error{ErrorKind::kInternal, "The model gave no result for a text", "internal_error", "", std::nullopt};
  }
  return Wanted::kNothing;
}

Result<std::vector<TokenId>> fitted(std::vector<TokenId> tokens, const GenerationFields& fields,
                                    const ServedModel& model, const std::string& param) {
  tokens = truncate_prompt(std::move(tokens), fields, model);
  if (tokens.empty()) return invalid("The prompt is empty: it has no tokens", param);
  if (static_cast<std::int64_t>(tokens.size()) <= model.max_model_len) return tokens;
  return invalid(fmt::format("This model's maximum context length is {} tokens. However, the text has {} tokens. "
                             "Please shorten it, or have it truncated.",
                             model.max_model_len, tokens.size()),
                 param, "context_length_exceeded");
}

Json vector_json(std::span<const float> vector, bool base64) {
  if (!base64) return std::vector<float>(vector.begin(), vector.end());
  std::string raw(vector.size() * sizeof(float), '\0');
  std::memcpy(raw.data(), vector.data(), raw.size());
  return encode_base64(raw);
}

}  // namespace quire
