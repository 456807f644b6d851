#include "core/model/architectures/hf_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/model/architectures/hf_families.h"
#include "core/model/formats/json_file.h"

namespace quire {

namespace {

using nlohmann::json;

// The layers' attention kinds in newer files: all must be the full one, or the model's context is bounded by the
// window.
bool uses_sliding_window(const JsonObject& config, std::int64_t num_layers) {
  if (const json* types = config.find("layer_types"); types != nullptr) {
    if (!types->is_array()) config.fail("'layer_types' is not an array");
    for (const json& type : *types) {
      if (type != "full_attention" && type != "sliding_attention") {
        config.fail(fmt::format("the layer type {} is not supported", printable(type.dump())));
      }
    }
    return std::ranges::find(*types, json("sliding_attention")) != types->end();
  }
  // Qwen2's rule: the window applies to the layers from max_window_layers on.
  return config.boolean("use_sliding_window").value_or(false) &&
         config.integer("max_window_layers").value_or(0) < num_layers;
}

void refuse_unsupported(const JsonObject& config) {
  const std::string activation = config.text("hidden_act").value_or("silu");
  if (activation != "silu") config.fail(fmt::format("the activation '{}' is not supported", printable(activation)));
  if (config.integer("num_local_experts").value_or(0) > 0 || config.integer("num_experts").value_or(0) > 0) {
    config.fail("mixture-of-experts models are not supported");
  }
}

void read_yarn(RopeConfig& rope, const JsonObject& scaling) {
  rope.beta_fast = scaling.number("beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = scaling.number("beta_slow").value_or(rope.beta_slow);
  rope.truncate = scaling.boolean("truncate").value_or(true);
  const auto mscale = scaling.number("mscale");
  const auto mscale_all_dim = scaling.number("mscale_all_dim");
  if (const auto given = scaling.number("attention_factor")) {
    rope.attention_factor = *given;
  } else if (mscale.value_or(0.0) != 0.0 && mscale_all_dim.value_or(0.0) != 0.0) {
    rope.attention_factor =
        yarn_attention_factor(rope.factor, *mscale) / yarn_attention_factor(rope.factor, *mscale_all_dim);
  } else {
    rope.attention_factor = yarn_attention_factor(rope.factor);
  }
}

void read_scaling(ModelConfig& config, const JsonObject& scaling) {
  RopeConfig& rope = config.rope;
  std::string type = scaling.text("rope_type").value_or("");
  if (type.empty()) type = scaling.text("type").value_or("default");
  if (type == "default") return;
  const auto max_context = static_cast<double>(config.max_context);
  rope.original_context = scaling.number("original_max_position_embeddings").value_or(max_context);
  // Dynamic scaling changes nothing up to the trained context. Beyond it, keys already cached would have to be rotated
  // again, so that the trained context is the limit.
  if (type == "dynamic") return;
  const auto factor = scaling.number("factor");
  if (type == "yarn" && !factor && rope.original_context > 0.0) {
    rope.factor = max_context / rope.original_context;
  } else if (!factor) {
    scaling.fail("'factor' is missing");
  } else {
    rope.factor = *factor;
  }
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = scaling.number("low_freq_factor").value_or(rope.low_freq_factor);
    rope.high_freq_factor = scaling.number("high_freq_factor").value_or(rope.high_freq_factor);
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    read_yarn(rope, scaling);
  } else {
    scaling.fail(
        fmt::format("the RoPE type '{}' is not supported (default, linear, dynamic, llama3, yarn)", printable(type)));
  }
}

void read_rope(ModelConfig& config, const JsonObject& object) {
  config.rope.style = RopeStyle::kHalf;
  config.rope.base = object.number("rope_theta").value_or(10000.0);
  double rotated = object.number("partial_rotary_factor").value_or(1.0);
  if (const auto scaling = object.object("rope_scaling")) {
    refuse_unknown_rope_keys(*object.find("rope_scaling"), *scaling);
    read_scaling(config, *scaling);
  }
  if (const auto parameters = object.object("rope_parameters")) {
    if (!parameters->has("rope_theta") && !parameters->has("rope_type")) {
      parameters->fail("parameters by layer type are not supported");
    }
    refuse_unknown_rope_keys(*object.find("rope_parameters"), *parameters);
    config.rope.base = parameters->number("rope_theta").value_or(config.rope.base);
    rotated = parameters->number("partial_rotary_factor").value_or(rotated);
    read_scaling(config, *parameters);
  }
  if (!(rotated > 0.0 && rotated <= 1.0)) object.fail("'partial_rotary_factor' is not above 0 and at most 1");
  config.rope.rotary_dim = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * rotated);
}

}  // namespace

// A parameter that would be ignored changes every token: what is not known is refused.
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

ModelConfig read_hf_config(const json& parsed, const std::string& where) {
  const JsonObject object(parsed, where);
  ModelConfig config;
  const auto model_type = object.text("model_type");
  if (!model_type) object.fail("'model_type' is missing");
  constexpr std::array<std::string_view, 3> kModelTypes{"llama", "qwen2", "qwen3"};
  if (std::ranges::find(kModelTypes, *model_type) == kModelTypes.end()) {
    object.fail(
        fmt::format("the model type '{}' is not supported (supported: llama, qwen2, qwen3)", printable(*model_type)));
  }
  refuse_unsupported(object);
  config.architecture = *model_type;
  config.num_layers = object.required_integer("num_hidden_layers");
  config.hidden_size = object.required_integer("hidden_size");
  config.ffn_size = object.required_integer("intermediate_size");
  config.num_heads = object.required_integer("num_attention_heads");
  config.num_kv_heads = object.integer("num_key_value_heads").value_or(config.num_heads);
  const std::int64_t even_share = config.num_heads > 0 ? config.hidden_size / config.num_heads : 0;
  // Qwen3's class has a head dimension of its own by default.
  config.head_dim = object.integer("head_dim").value_or(*model_type == "qwen3" ? 128 : even_share);
  config.vocab_size = object.required_integer("vocab_size");
  config.max_context = object.required_integer("max_position_embeddings");
  config.rms_eps = object.number("rms_norm_eps").value_or(1e-6);
  config.has_qk_norm = *model_type == "qwen3";
  config.tied_head = object.boolean("tie_word_embeddings").value_or(false);
  read_rope(config, object);
  if (uses_sliding_window(object, config.num_layers)) {
    // Within the window, attention is the whole context's: a shorter limit keeps the model exact.
    config.max_context = std::min(config.max_context, object.integer("sliding_window").value_or(config.max_context));
  }
  for (const char* used_elsewhere : {"sliding_window", "use_sliding_window", "max_window_layers"})
    object.find(used_elsewhere);
  refuse_unknown_hf_keys(parsed, object);
  return config;
}

GenerationDefaults read_hf_generation(const json& generation, const std::string& where) {
  const JsonObject object(generation, where);
  const auto real = [&](const char* key) -> std::optional<float> {
    const auto value = object.number(key);
    return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
  };
  GenerationDefaults out;
  out.temperature = real("temperature");
  out.top_p = real("top_p");
  out.min_p = real("min_p");
  out.repetition_penalty = real("repetition_penalty");
  if (const auto top_k = object.integer("top_k")) {
    if (!std::in_range<std::int32_t>(*top_k)) object.fail("'top_k' is out of range");
    out.top_k = static_cast<std::int32_t>(*top_k);
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
