#include "core/model/architectures/hf_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/message_text.h"
#include "core/base/sampling_ranges.h"
#include "core/model/architectures/hf_families.h"
#include "core/model/architectures/registry.h"
#include "core/model/formats/hf/json_file.h"

namespace quire {

namespace {

using nlohmann::json;

// Models of several media have their text model's configuration in an object of its own.
const json& text_config(const json& config) {
  const auto found = config.find("text_config");
  return found != config.end() && found->is_object() ? *found : config;
}

const HfFamily& family_of(const JsonObject& text, const json& raw) {
  const auto type = text.text("model_type");
  if (!type) text.fail("'model_type' is missing");
  if (const HfFamily* family = hf_family_of(raw)) return *family;
  text.fail(fmt::format("the model type '{}' is not supported; the nearest known one is '{}'", printable(*type),
                        nearest_hf_family(*type)));
}

}  // namespace

// Refuses unknown parameters: ignoring one would change every token.
void refuse_unknown_rope_keys(const json& scaling, const JsonObject& object) {
  constexpr std::string_view kKnown[] = {"rope_type",
                                         "type",
                                         "rope_theta",
                                         "partial_rotary_factor",
                                         "factor",
                                         "original_max_position_embeddings",
                                         "beta_fast",
                                         "beta_slow",
                                         "truncate",
                                         "low_freq_factor",
                                         "high_freq_factor",
                                         "attention_factor",
                                         "mscale",
                                         "mscale_all_dim",
                                         "finetuned",
                                         "short_factor",
                                         "long_factor",
                                         "short_mscale",
                                         "long_mscale",
                                         "mrope_section",
                                         "mrope_interleaved",
                                         "llama_4_scaling_beta",
                                         "max_position_embeddings"};
  for (const auto& [key, value] : scaling.items()) {
    if (!value.is_null() && std::ranges::find(kKnown, key) == std::end(kKnown))
      object.fail(fmt::format("the RoPE parameter '{}' is not supported", printable(key)));
  }
}

ModelSpec read_hf_spec(const json& config, const std::string& where, TensorTable& tensors, const SpecWishes& wishes) {
  const json& text = text_config(config);
  const HfFamily& family = family_of(JsonObject(text, where), text);
  const json whole = with_class_defaults(text, family);
  const JsonObject object(whole, where);
  const auto metadata = translate_hf_config(whole, object, family, tensors, wishes);
  translate_hf_tensors(object, family, tensors);
  ModelSpec spec = read_spec(*metadata, tensors, wishes);
  refuse_unknown_hf_keys(whole, object, tensors, wishes);
  if (family.swaps_halves) {
    for (RopeConfig& rope : spec.ropes)
      rope.style = RopeStyle::kHalf;
    spec.config.rope.style = RopeStyle::kHalf;
  }
  return spec;
}

GenerationDefaults read_hf_generation(const json& generation, const std::string& where, TensorTable& tensors) {
  const JsonObject object(generation, where);
  const auto real = [&](const char* key, const SamplingRange& range) -> std::optional<float> {
    const auto value = object.number(key);
    if (value) check_in_range(*value, range, key, where);
    return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
  };
  GenerationDefaults out;
  out.temperature = real("temperature", kTemperatureRange);
  out.top_p = real("top_p", kProbabilityRange);
  out.min_p = real("min_p", kProbabilityRange);
  out.repetition_penalty = real("repetition_penalty", kRepetitionPenaltyRange);
  if (const auto top_k = object.integer("top_k")) {
    check_in_range(static_cast<double>(*top_k), kTopKRange, "top_k", where);
    out.top_k = static_cast<std::int32_t>(*top_k);
  }
  // Values without effect in transformers.
  constexpr std::pair<const char*, double> kNotApplied[] = {{"typical_p", 1.0},     {"epsilon_cutoff", 0.0},
                                                            {"eta_cutoff", 0.0},    {"no_repeat_ngram_size", 0.0},
                                                            {"penalty_alpha", 0.0}, {"encoder_repetition_penalty", 1.0},
                                                            {"num_beams", 1.0},     {"guidance_scale", 1.0}};
  for (const auto& [key, off] : kNotApplied) {
    const json* value = object.find(key);
    if (value != nullptr && *value != off)
      tensors.warn(fmt::format("generation_config.json: the default '{}' is not applied", key));
  }
  return out;
}

Pooling read_hf_pooling(const json& pooling, const std::string& where) {
  const JsonObject object(pooling, where);
  struct Mode {
    const char* flag;
    const char* name;
    Pooling pooling;
  };
  constexpr Mode kModes[] = {{"pooling_mode_cls_token", "cls", Pooling::kCls},
                             {"pooling_mode_mean_tokens", "mean", Pooling::kMean},
                             {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast}};
  Pooling chosen = Pooling::kNone;
  const auto name = object.text("pooling_mode");
  for (const Mode& mode : kModes) {
    if (name != mode.name && !object.boolean(mode.flag).value_or(false)) continue;
    if (chosen != Pooling::kNone) object.fail("several pooling modes are joined, which is not supported");
    chosen = mode.pooling;
  }
  for (const char* flag :
       {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens"}) {
    if (object.boolean(flag).value_or(false)) object.fail(std::string("'") + flag + "' is not supported");
  }
  if (chosen == Pooling::kNone) object.fail("no supported pooling mode is chosen");
  return chosen;
}

std::string read_hf_chat_template(const json& tokenizer_config, const std::string& where) {
  const JsonObject object(tokenizer_config, where);
  const json* value = object.find("chat_template");
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) object.fail("'chat_template' is neither a string nor a list");
  for (const json& entry : *value) {
    if (!entry.is_object()) object.fail("'chat_template' has an entry that is no object");
    const JsonObject named(entry, where + ": chat_template");
    if (named.text("name") == "default") return named.text("template").value_or("");
  }
  return "";
}

}  // namespace quire
