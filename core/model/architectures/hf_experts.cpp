// Configuration keys of decoders with experts or latent attention, beyond the common ones.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"

namespace quire {

void translate_gpt_oss(HfTranslation& t) {
  t.set_integer("expert_feed_forward_length", t.config().required_integer("intermediate_size"));
  t.require_number("swiglu_limit", 7.0);
}

void translate_latent(HfTranslation& t) {
  t.require_flag("rope_interleave", true, true);
}

// The number of leading dense layers is counted in the list of kinds.
void translate_glm_lite(HfTranslation& t) {
  t.require_flag("rope_interleave", true, true);
  t.set_integer("expert_gating_func", 2);
  const nlohmann::json* kinds = t.config().find("mlp_layer_types");
  if (kinds == nullptr) {
    t.set_integer("leading_dense_block_count", t.config().integer("first_k_dense_replace").value_or(1));
    return;
  }
  std::int64_t dense = 0;
  while (dense < std::ssize(*kinds) && (*kinds)[static_cast<std::size_t>(dense)] == "dense")
    ++dense;
  t.set_integer("leading_dense_block_count", dense);
}

void translate_sigmoid_experts(HfTranslation& t) {
  t.set_integer("expert_gating_func", 2);
}

// Layer norms stored under RMS norms' names. Experts are weighted as in training, with its jitter as a threshold.
void translate_phimoe(HfTranslation& t) {
  const JsonObject& config = t.config();
  t.require_integer("num_experts_per_tok", 2);
  t.set("expert_mixer_jitter", config.number("router_jitter_noise").value_or(0.01));
  t.set("attention.layer_norm_epsilon", config.number("rms_norm_eps").value_or(1e-5));
  t.erase("attention.layer_norm_rms_epsilon");
  config.boolean("lm_head_bias");  // shown by the tensors
}

void translate_minimax(HfTranslation& t) {
  t.set_integer("expert_gating_func", 2);
  t.require_flag("use_qk_norm", true, true);
  t.require_text("qk_norm_type", "per_layer");
  // Factors of the residual stream in first-generation models.
  for (const char* of : {"attention", "full_attention", "linear_attention", "mlp"}) {
    for (const char* factor : {"alpha", "beta"})
      t.require_number(fmt::format("layernorm_{}_{}", of, factor).c_str(), 1.0);
  }
  t.require_flag("postnorm", false, false);
  // Sizes of a shared expert and of dense layers, which this model does not have.
  t.require_integer("shared_intermediate_size", 0);
  for (const char* of_others : {"shared_moe_mode", "mlp_intermediate_size", "mtp_transformer_layers"})
    t.config().find(of_others);
  // 0 is linear attention, used by first-generation models.
  if (const auto kinds = t.layer_list("attn_type_list"); kinds && std::ranges::find(*kinds, 0) != kinds->end())
    t.config().fail("linear attention in 'attn_type_list' is not supported");
}

// Both generations have the same model type.
void translate_bailing(HfTranslation& t) {
  const nlohmann::json* names = t.config().find("architectures");
  if (names != nullptr && names->is_array() && !names->empty() && names->front() == "BailingMoeForCausalLM")
    t.config().fail(
        "the architecture 'BailingMoeForCausalLM' is not supported; the nearest known one is "
        "'BailingMoeV2ForCausalLM'");
  t.require_text("score_function", "sigmoid");
  t.require_flag("norm_head", false, false);
  for (const char* shown : {"moe_router_enable_expert_bias", "moe_router_enable_routed_scaling"})
    t.config().boolean(shown);  // shown by a tensor and by a factor
  t.set_integer("expert_gating_func", 2);
  t.config().integer("rotary_dim");
}

void translate_ernie_experts(HfTranslation& t) {
  t.copy_integer("moe_num_experts", "expert_count");
  t.copy_integer("moe_k", "expert_used_count");
  t.copy_integer("moe_layer_start_index", "leading_dense_block_count");
  t.require_integer("moe_layer_interval", 1);
  if (t.config().number("moe_norm_min").value_or(0.0) > 1e-6)
    t.config().fail("a 'moe_norm_min' that is not tiny is not supported");
  if (const auto last = t.config().integer("moe_layer_end_index"); last && *last >= 0 && *last < t.num_layers() - 1)
    t.config().fail("a 'moe_layer_end_index' before the last layer is not supported");
}

// Lists name the layers that see chunks and those that have positions.
void translate_llama4(HfTranslation& t) {
  const JsonObject& config = t.config();
  t.copy_integer("intermediate_size_mlp", "feed_forward_length");
  for (const char* shown : {"interleave_moe_layer_step", "moe_layers"})
    config.find(shown);  // shown by the tensors
  const auto positions = t.layer_list("no_rope_layers");
  const std::int64_t interval = config.integer("no_rope_layer_interval").value_or(4);
  if (interval < 1) config.fail("'no_rope_layer_interval' is not positive");
  std::vector<bool> rotates;
  std::vector<bool> chunked;
  for (std::int64_t i = 0; i < t.num_layers(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    rotates.push_back(positions && at < positions->size() ? (*positions)[at] != 0 : (i + 1) % interval != 0);
    chunked.push_back(t.layer_types().empty() ? rotates.back() : t.layer_types().at(at) == "chunked_attention");
  }
  t.set("attention.rotates", rotates);
  t.set("attention.chunked", chunked);
  t.set_integer("attention.chunk_size", config.integer("attention_chunk_size").value_or(0));
  t.set("attention.unit_qk_norm", config.boolean("use_qk_norm").value_or(true));
  // Older files have a number here.
  const nlohmann::json* tuning = config.find("attn_temperature_tuning");
  const bool has_temperature = tuning == nullptr || (*tuning != false && *tuning != 0);
  t.set("attention.temperature_scale", has_temperature ? config.number("attn_scale").value_or(0.1) : 0.0);
  t.set_integer("attention.temperature_length", config.integer("floor_scale").value_or(8192));
}

// Keys and values differ in width; sliding layers have their own heads and rotation.
void translate_mimo2(HfTranslation& t) {
  const JsonObject& config = t.config();
  const auto slides = t.layer_list("hybrid_layer_pattern");
  if (!slides) config.fail("'hybrid_layer_pattern' is missing");
  const std::int64_t heads = config.required_integer("num_key_value_heads");
  const std::int64_t local_heads = config.integer("swa_num_key_value_heads").value_or(heads);
  const std::int64_t key = config.required_integer("head_dim");
  const std::int64_t value = config.integer("v_head_dim").value_or(key);
  t.require_integer("swa_head_dim", key);
  t.require_integer("swa_v_head_dim", value);
  t.require_integer("swa_num_attention_heads", config.required_integer("num_attention_heads"));
  t.set_integer("attention.value_length", value);
  std::vector<std::int64_t> kv_heads;
  for (const std::int64_t own : *slides)
    kv_heads.push_back(own != 0 ? local_heads : heads);
  t.set("attention.head_count_kv", kv_heads);
  t.set("attention.sliding_window_pattern", *slides);
  t.copy_integer("sliding_window_size", "attention.sliding_window");
  config.integer("attention_chunk_size");  // repeats the window
  t.copy_integer("sliding_window", "attention.sliding_window");
  t.copy_number("swa_rope_theta", "rope.freq_base_swa");
  t.copy_number("attention_value_scale", "attention.value_scale");
  t.copy_number("layernorm_epsilon", "attention.layer_norm_rms_epsilon");
  for (const char* key_of_sinks : {"add_swa_attention_sink_bias", "add_full_attention_sink_bias"})
    config.boolean(key_of_sinks);  // shown by the tensors
}

}  // namespace quire
