#include "server/api/generation/generation_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/base/sampling_ranges.h"
#include "server/api/common/operation.h"
#include "server/api/fields/chat.h"
#include "server/api/fields/generation.h"

namespace quire {

namespace {

// Token limit of a forbidden word, or of one that ends a repetition (DRY).
constexpr std::size_t kMostWordTokens = 1024;

void set(std::int32_t& target, std::optional<std::int64_t> value) {
  if (value) target = static_cast<std::int32_t>(*value);
}

void apply_defaults(SamplingParams& sampling, const GenerationDefaults& defaults) {
  sampling.temperature = defaults.temperature.value_or(sampling.temperature);
  sampling.top_p = defaults.top_p.value_or(sampling.top_p);
  sampling.top_k = defaults.top_k.value_or(sampling.top_k);
  sampling.min_p = defaults.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = defaults.repetition_penalty.value_or(sampling.repetition_penalty);
}

// The tokens of one word of a field; empty if it has too many.
std::vector<TokenId> read_word(FieldReader& reader, const fields::Field& field, const std::string& word,
                               const Tokenizer& tokenizer) {
  const TextPiece piece{word, false};
  auto tokens = tokenizer.encode_at_most({&piece, 1}, false, kMostWordTokens);
  if (tokens) return *std::move(tokens);
  reader.fail(field, fmt::format("'{}' holds a text of more than {} tokens", field.name, kMostWordTokens));
  return {};
}

void read_breakers(FieldReader& reader, SamplingParams& sampling, const Tokenizer& tokenizer) {
  auto breakers = reader.strings(fields::generation::kDrySequenceBreakers);
  if (sampling.dry.multiplier == 0.0F) return;
  if (!breakers) breakers = std::vector<std::string>{"\n", ":", "\"", "*"};
  for (const std::string& text : *breakers) {
    auto tokens = read_word(reader, fields::generation::kDrySequenceBreakers, text, tokenizer);
    if (!tokens.empty()) sampling.dry.breakers.push_back(std::move(tokens));
  }
}

// llama-server's form: [[token id or text, bias], ...], where false forbids.
void read_bias_pairs(FieldReader& reader, const Json& pairs, SamplingParams& sampling, const Tokenizer& tokenizer) {
  // They are applied in each step: no more than there are tokens.
  if (pairs.size() > static_cast<std::size_t>(tokenizer.vocab_size())) {
    return reader.fail(fields::generation::kLogitBias,
                       fmt::format("'logit_bias' holds more than {} pairs", tokenizer.vocab_size()));
  }
  for (const Json& pair : pairs) {
    const bool is_pair = pair.is_array() && pair.size() == 2 && (pair[0].is_string() || pair[0].is_number_integer()) &&
                         (pair[1].is_number() || pair[1] == false);
    if (!is_pair)
      return reader.fail(fields::generation::kLogitBias,
                         "'logit_bias' must hold pairs of a token, or a text, and its bias");
    const float value = pair[1].is_number() ? pair[1].get<float>() : -std::numeric_limits<float>::infinity();
    std::vector<TokenId> tokens;
    if (pair[0].is_string()) {
      tokens = read_word(reader, fields::generation::kLogitBias, pair[0].get_ref<const std::string&>(), tokenizer);
    } else if (pair[0] >= 0 && pair[0] < tokenizer.vocab_size()) {
      tokens = {TokenId{pair[0].get<std::int32_t>()}};
    } else {
      return reader.fail(fields::generation::kLogitBias,
                         fmt::format("'logit_bias' names a token that is not below {}", tokenizer.vocab_size()));
    }
    if (sampling.logit_bias.size() + tokens.size() > static_cast<std::size_t>(tokenizer.vocab_size()))
      return reader.fail(fields::generation::kLogitBias, "'logit_bias' names more tokens than there are");
    for (const TokenId token : tokens)
      sampling.logit_bias.emplace_back(token, value);
  }
}

void read_logit_bias(FieldReader& reader, SamplingParams& sampling, const Tokenizer& tokenizer) {
  const Json* bias = reader.find(fields::generation::kLogitBias);
  if (bias == nullptr) return;
  if (bias->is_array()) return read_bias_pairs(reader, *bias, sampling, tokenizer);
  if (reader.object(fields::generation::kLogitBias) == nullptr) return;
  const std::int32_t vocab_size = tokenizer.vocab_size();
  for (const auto& [key, value] : bias->items()) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
      return reader.fail(fields::generation::kLogitBias,
                         fmt::format("Invalid key in 'logit_bias': '{}' is not a token id below {}", key, vocab_size));
    }
    if (!value.is_number() || value.get<double>() < -100.0 || value.get<double>() > 100.0) {
      return reader.fail(
          fields::generation::kLogitBias,
          fmt::format("Invalid value in 'logit_bias' for token {}: expected a number between -100 and 100", id));
    }
    sampling.logit_bias.emplace_back(TokenId{id}, value.get<float>());
  }
}

std::vector<TokenId> to_token_ids(const std::vector<std::int32_t>& values) {
  std::vector<TokenId> ids;
  ids.reserve(values.size());
  for (const std::int32_t value : values)
    ids.push_back(TokenId{value});
  return ids;
}

void read_token_lists(FieldReader& reader, SamplingParams& sampling, const Tokenizer& tokenizer) {
  const std::int32_t last = tokenizer.vocab_size() - 1;
  const auto most = static_cast<std::size_t>(tokenizer.vocab_size());
  if (const auto ids = reader.integers(fields::generation::kStopTokenIds, 0, last, most))
    sampling.stop_token_ids = to_token_ids(*ids);
  if (const auto ids = reader.integers(fields::generation::kAllowedTokenIds, 0, last, most)) {
    sampling.allowed_token_ids = to_token_ids(*ids);
    if (ids->empty()) reader.fail(fields::generation::kAllowedTokenIds, "'allowed_token_ids' must not be empty");
  }
  for (const std::string& word : reader.strings(fields::generation::kBadWords).value_or(std::vector<std::string>{})) {
    if (word.empty()) return reader.fail(fields::generation::kBadWords, "'bad_words' must not hold an empty string");
    // The word at the start of a text and after a space are different tokens; both are forbidden.
    auto plain = read_word(reader, fields::generation::kBadWords, word, tokenizer);
    auto spaced = read_word(reader, fields::generation::kBadWords, " " + word, tokenizer);
    if (reader.error()) return;
    if (spaced != plain) sampling.bad_words.push_back(std::move(spaced));
    sampling.bad_words.push_back(std::move(plain));
  }
}

void read_stops(FieldReader& reader, GenerationFields& fields) {
  if (auto stop = reader.string_or_strings(fields::generation::kStop)) fields.stop = std::move(*stop);
  check_stops(reader, fields::generation::kStop, fields.stop);
  fields.include_stop_in_output = reader.boolean(fields::generation::kIncludeStopStrInOutput, false);
  fields.skip_special_tokens = reader.boolean(fields::generation::kSkipSpecialTokens, true);
  fields.sampling.ignore_eos = reader.boolean(fields::generation::kIgnoreEos, false);
  set(fields.sampling.min_tokens, reader.integer(fields::generation::kMinTokens));
}

void read_stream(FieldReader& reader, GenerationFields& fields) {
  fields.stream = reader.boolean(fields::generation::kStream, false);
  fields.return_progress = reader.boolean(fields::generation::kReturnProgress, false) && fields.stream;
  if (const auto seconds = reader.integer(fields::generation::kSsePingInterval))
    fields.ping_interval = std::chrono::seconds(std::max<std::int64_t>(*seconds, 0));
  const Json* options = reader.object(fields::generation::kStreamOptions);
  if (options == nullptr) return;
  if (!fields.stream) return reader.fail(fields::generation::kStreamOptions, "'stream_options' needs 'stream': true");
  FieldReader inner(*options, "stream_options.");
  fields.include_usage = inner.boolean("include_usage", false);
  fields.continuous_usage = inner.boolean("continuous_usage_stats", false) && fields.include_usage;
  // Padding against traffic analysis; leaving it out is OpenAI's own answer to false, and true cannot be honoured.
  if (inner.boolean("include_obfuscation", false)) inner.refuse("include_obfuscation", "chunks are not padded");
  if (inner.error()) reader.fail(fields::generation::kStreamOptions, inner.error()->message, inner.error()->code);
}

void read_routing(FieldReader& reader, GenerationFields& fields) {
  fields.slot = static_cast<std::int32_t>(reader.integer(fields::generation::kIdSlot).value_or(-1));
  if (const auto priority = reader.integer(fields::generation::kPriority))
    fields.priority = static_cast<std::int32_t>(*priority);
  fields.cache_salt = reader.string(fields::generation::kCacheSalt).value_or("");
  fields.request_id = reader.string(fields::generation::kRequestId).value_or("");
  if (const auto seconds = reader.number(fields::generation::kTimeout)) {
    fields.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000.0));
  }
}

// "off", or vLLM's object. Drafting changes no answer: a draft model that is not there is refused all the same.
void read_speculation(FieldReader& reader, GenerationFields& fields, const ServedModel& model) {
  const Json* config = reader.find(fields::generation::kSpeculativeConfig);
  if (config == nullptr) return;
  SpeculationOptions& speculation = fields.speculation.emplace();
  if (*config == "off") return;
  if (!reader.is_object(fields::generation::kSpeculativeConfig, *config)) return;
  FieldReader inner(*config, "speculative_config.");
  for (const char* name : {"model", "draft_tensor_parallel_size", "prompt_lookup_max", "prompt_lookup_min"})
    inner.refuse(name,
                 "a request chooses among the methods that the server has; how much is drafted follows from how "
                 "often it is right");
  const auto method = inner.word("method", {"ngram", "prompt_lookup", "mtp", "draft", "draft_model", "none", "off"});
  if (!method && !inner.error()) inner.missing("method");
  if (method == "ngram" || method == "prompt_lookup") speculation.method = SpeculationMethod::kPromptLookup;
  if (method == "mtp") {
    speculation.method = SpeculationMethod::kNextTokens;
    if (!model.info.has_next_tokens)
      inner.fail("method",
                 "the model is not served with a block that predicts further tokens (speculation.method: mtp)");
  }
  if (method == "draft" || method == "draft_model") {
    speculation.method = SpeculationMethod::kDraftModel;
    if (!model.has_draft_model)
      inner.fail("method", "the model is not served with a draft model (speculation.draft_model)");
  }
  set(speculation.max_tokens, inner.integer("num_speculative_tokens", 1, kMostDraftsOfSequence));
  if (inner.error()) reader.fail(fields::generation::kSpeculativeConfig, inner.error()->message, inner.error()->code);
}

void read_counts(FieldReader& reader, GenerationFields& fields, const ServedModel& model) {
  if (const auto count = reader.integer(fields::generation::kMaxTokens))
    fields.max_tokens = static_cast<std::int32_t>(*count);
  // llama-server's name, which it prefers.
  if (const auto count = reader.integer(fields::generation::kNPredict)) {
    fields.to_context_end = *count < 0;
    fields.max_tokens.reset();
    if (*count >= 0) fields.max_tokens = static_cast<std::int32_t>(*count);
  }
  set(fields.num_choices, reader.integer(fields::generation::kN, model.max_num_choices));
  fields.best_of = fields.num_choices;
  if (const auto seed = reader.integer(fields::generation::kSeed)) {
    // -1 is how users of vLLM and llama-server ask for a random one.
    if (*seed != -1) fields.sampling.seed = static_cast<std::uint64_t>(*seed);
  }
  if (const auto count = reader.integer(fields::generation::kPromptLogprobs)) {
    fields.sampling.num_prompt_logprobs = static_cast<std::int32_t>(*count);
  }
}

void read_truncation(FieldReader& reader, GenerationFields& fields) {
  if (const auto keep = reader.integer(fields::generation::kTruncatePromptTokens); keep && *keep != 0) {
    fields.truncate_prompt_tokens = static_cast<std::int32_t>(*keep);
  } else if (keep) {
    reader.fail(fields::generation::kTruncatePromptTokens, "'truncate_prompt_tokens' must be -1 or at least 1");
  }
  fields.truncate_end = reader.word(fields::generation::kTruncationSide) == "right";
}

}  // namespace

GenerationFields read_generation_fields(FieldReader& reader, const ServedModel& model, const SamplingParams& neutral) {
  GenerationFields fields;
  if (!model.info.has_head) {
    reader.fail(fields::generation::kModel,
                fmt::format("The model '{}' generates no text: it is an encoder, for /v1/embeddings{}", model.name,
                            model.tasks.num_labels > 0 ? ", /v1/rerank and /classify" : " and /v1/rerank"),
                "unsupported_operation");
    return fields;
  }
  fields.sampling = neutral;
  apply_defaults(fields.sampling, model.defaults);
  read_counts(reader, fields, model);
  read_samplers(reader, fields.sampling);
  read_breakers(reader, fields.sampling, *model.tokenizer);
  read_sampler_order(reader, fields.sampling);
  read_logit_bias(reader, fields.sampling, *model.tokenizer);
  for (const TokenId token : model.tokenizer->suppressed())
    fields.sampling.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
  read_token_lists(reader, fields.sampling, *model.tokenizer);
  read_stops(reader, fields);
  read_stream(reader, fields);
  read_routing(reader, fields);
  read_truncation(reader, fields);
  read_speculation(reader, fields, model);
  fields.return_token_ids = reader.boolean(fields::generation::kReturnTokenIds, false);
  fields.tokens_as_ids = reader.boolean(fields::generation::kReturnTokensAsTokenIds, false);
  reader.refuse_from(fields::kGenerationFields);
  if (fields.max_tokens && fields.sampling.min_tokens > *fields.max_tokens) {
    reader.fail(fields::generation::kMinTokens, "'min_tokens' is larger than the number of tokens to generate");
  }
  if (fields.stream && fields.sampling.num_prompt_logprobs) {
    reader.fail(fields::generation::kPromptLogprobs, "'prompt_logprobs' is not available with 'stream': true",
                "unsupported_parameter");
  }
  return fields;
}

Json read_metadata(FieldReader& reader) {
  const Json* metadata = reader.object(fields::chat::kMetadata);
  if (metadata == nullptr) return nullptr;
  for (const auto& [name, value] : metadata->items()) {
    if (!value.is_string())
      reader.fail(fields::chat::kMetadata, fmt::format("'metadata.{}' must be a string", name), "invalid_type");
  }
  if (metadata->size() > 16) reader.fail(fields::chat::kMetadata, "'metadata' has more than 16 members");
  if (dump_json(*metadata).size() > kMaxMetadataBytes)
    reader.fail(fields::chat::kMetadata, fmt::format("'metadata' must be at most {} bytes", kMaxMetadataBytes));
  return *metadata;
}

void check_stops(FieldReader& reader, const fields::Field& field, const std::vector<std::string>& stops) {
  std::size_t num_bytes = 0;
  for (const std::string& text : stops) {
    if (text.empty()) return reader.fail(field, fmt::format("'{}' must not hold an empty string", field.name));
    num_bytes += text.size();
  }
  if (num_bytes > kMaxStopBytes)
    reader.fail(field, fmt::format("'{}' holds more than {} bytes of text", field.name, kMaxStopBytes));
}

void read_retention(FieldReader& reader, GenerationFields& fields, bool continues) {
  const std::string key = reader.string(fields::chat::kPromptCacheKey).value_or("");
  // OpenAI's reference and its SDKs spell it differently.
  const auto retention = reader.word(fields::chat::kPromptCacheRetention);
  const bool in_memory = retention == "in_memory" || retention == "in-memory";
  fields.is_retained = !in_memory && (continues || !key.empty() || retention == "24h");
}

std::string response_id(std::string_view prefix, const GenerationFields& fields) {
  if (fields.request_id.empty() && fields.id_tail.empty()) return make_id(prefix);
  return std::string(prefix) + (fields.request_id.empty() ? fields.id_tail : fields.request_id);
}

Result<std::optional<StreamOrigin>> take_origin(const Call& call, const ServedModel& model, std::size_t num_prompts,
                                                GenerationFields& fields) {
  if (call.origin == nullptr || !fields.stream) return std::nullopt;
  // Events of several choices come in any order, progress depends on the cache, and only a name identifies an adapter.
  const bool is_one = num_prompts == 1 && fields.num_choices == 1 && !fields.return_progress;
  if (!is_one || model.adapter != nullptr || model.fingerprint.empty()) return std::nullopt;
  StreamOrigin origin = *call.origin;
  if (!origin.fingerprint.empty() && origin.fingerprint != model.fingerprint) {
    return failure(ErrorKind::kNotFound,
                   "The stream was begun by another model or version: send the request without "
                   "Last-Event-ID",
                   "stream_not_found");
  }
  origin.fingerprint = model.fingerprint;
  if (!fields.sampling.seed) fields.sampling.seed = origin.seed;
  fields.id_tail = origin.id_tail;
  return origin;
}

}  // namespace quire
