#include "server/api/common/pooled_operation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "server/api/common/encodings.h"
#include "server/api/common/json.h"
#include "server/api/fields/pooling.h"

namespace quire {

PooledOperation::PooledOperation(const ServedModel& model, std::vector<PooledText> texts, const PooledWants& wants,
                                 const Call& call, std::string_view id_prefix, PooledBody body)
    : body_(std::move(body)) {
  queue_ = model.queue;
  answer_.id = make_id(id_prefix);
  answer_.created = call.created;
  answer_.model = model.name;
  answer_.outputs.resize(texts.size());
  for (PooledText& text : texts) {
    auto request = std::make_shared<Request>();
    request->id = fmt::format("{}-{}", answer_.id, requests_.size());
    request->key_name = call.key_name;
    request->is_background = call.is_background;
    request->priority = call.usual_priority;
    request->prompt = std::move(text.tokens);
    request->second_text = text.second_text;
    request->sampling.max_tokens = 1;
    request->pooling = wants.pooling;
    request->adapter = model.adapter;
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
  if (event.finish->error) error_ = *event.finish->error;
  if (!error_ && output.empty()) {
    error_ = Error{ErrorKind::kInternal, "The model gave no result for a text", "internal_error", "", std::nullopt};
  }
  return Wanted::kNothing;
}

bool PooledOperation::append_part(std::string& out) {
  if (body_.list.empty()) {
    out += dump_json(body_.head(answer_));
    return false;
  }
  const std::size_t count = answer_.outputs.size();
  if (num_written_ == 0) out += dump_opened(body_.head(answer_)) + ",\"" + body_.list + "\":[";
  if (num_written_ < count) {
    if (num_written_ > 0) out += ',';
    out += dump_json(body_.item(answer_, num_written_));
    answer_.outputs[num_written_] = {};
    if (++num_written_ < count) return true;
  }
  out += "]" + dump_members(body_.tail(answer_)) + "}";
  return false;
}

bool PooledOperation::finish_part(std::string& out) {
  const std::size_t before = out.size();
  while (append_part(out)) {
    if (out.size() - before >= kAnswerPart) return true;
  }
  return false;
}

AnswerSize PooledOperation::answer_size() const {
  constexpr std::int64_t kNumberText = 12;
  std::int64_t num_numbers = 0;
  for (const std::vector<float>& output : answer_.outputs)
    num_numbers += std::ssize(output);
  return {num_numbers * static_cast<std::int64_t>(sizeof(float)), num_numbers * kNumberText};
}

TextTruncation read_text_truncation(FieldReader& reader) {
  TextTruncation truncation;
  if (const Json* value = reader.find(fields::pooling::kTruncate); value != nullptr && value->is_boolean()) {
    if (value->get<bool>()) truncation = {TextTruncation::Keep::kWhatFits, 0, true};
  } else if (const auto side = reader.word(fields::pooling::kTruncate, {"NONE", "START", "END"});
             side && *side != "NONE") {
    truncation = {TextTruncation::Keep::kWhatFits, 0, *side == "END"};
  }
  if (const auto keep = reader.integer(fields::pooling::kTruncatePromptTokens)) {
    if (*keep == 0)
      reader.fail(fields::pooling::kTruncatePromptTokens, "'truncate_prompt_tokens' must be -1 or at least 1");
    truncation.keep = *keep < 0 ? TextTruncation::Keep::kWhatFits : TextTruncation::Keep::kTokens;
    truncation.num_tokens = *keep;
  }
  if (const auto side = reader.word(fields::pooling::kTruncationSide)) truncation.keeps_first = *side == "right";
  return truncation;
}

std::int64_t TextTruncation::limit(const ServedModel& model) const {
  switch (keep) {
    case Keep::kAll: break;
    case Keep::kTokens: return num_tokens;
    case Keep::kWhatFits: return model.max_model_len;
  }
  return std::numeric_limits<std::int64_t>::max();
}

Result<std::vector<TokenId>> fitted(std::vector<TokenId> tokens, const TextTruncation& truncation,
                                    const ServedModel& model, const std::string& param) {
  const bool is_encoder = !model.info.is_causal;
  const std::int64_t excess = std::ssize(tokens) - truncation.limit(model);
  if (excess > 0) {
    const bool has_first = is_encoder && model.tokenizer->is_special(tokens.front());
    const bool has_last = is_encoder && model.tokenizer->is_special(tokens.back());
    const auto begin = tokens.begin() + (has_first ? 1 : 0);
    const auto end = tokens.end() - (has_last ? 1 : 0);
    const auto count = std::min<std::ptrdiff_t>(excess, std::max<std::ptrdiff_t>(end - begin, 0));
    const auto first = truncation.keeps_first.value_or(is_encoder) ? end - count : begin;
    tokens.erase(first, first + count);
  }
  if (tokens.empty()) return invalid("The prompt is empty: it has no tokens", param);
  if (std::ssize(tokens) <= model.max_model_len) return tokens;
  return invalid(fmt::format("This model's maximum context length is {} tokens. However, the text has {} tokens. "
                             "Please shorten it, or have it truncated.",
                             model.max_model_len, tokens.size()),
                 param, "context_length_exceeded");
}

std::vector<float> shortened(std::vector<float> vector, std::size_t dimensions, bool normalize) {
  if (vector.size() <= dimensions) return vector;
  vector.resize(dimensions);
  double square = 0.0;
  for (const float value : vector)
    square += static_cast<double>(value) * static_cast<double>(value);
  if (square > 0.0 && normalize) {
    for (float& value : vector)
      value = static_cast<float>(static_cast<double>(value) / std::sqrt(square));
  }
  return vector;
}

Json vector_json(std::span<const float> vector, bool base64) {
  if (!base64) return std::vector<float>(vector.begin(), vector.end());
  std::string raw(vector.size() * sizeof(float), '\0');
  std::memcpy(raw.data(), vector.data(), raw.size());
  return encode_base64(raw);
}

}  // namespace quire
