// What the configurations of encoders say beyond the common keys.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"

namespace quire {

using nlohmann::json;

void translate_bert(HfTranslation& t) {
  t.set("attention.causal", false);
  t.require_text("position_embedding_type", "absolute");
  t.require_flag("is_decoder", false, false);
}

// Older names for the common sizes; a rotation instead of positions.
void translate_nomic_bert(HfTranslation& t) {
  t.set("attention.causal", false);
  t.copy_integer("n_embd", "embedding_length");
  t.copy_integer("n_layer", "block_count");
  t.copy_integer("n_head", "attention.head_count");
  t.copy_integer("n_inner", "feed_forward_length");
  t.copy_integer("max_trained_positions", "context_length");
  t.copy_integer("n_positions", "context_length");
  t.copy_number("layer_norm_epsilon", "attention.layer_norm_epsilon");
  t.copy_number("rotary_emb_base", "rope.freq_base");
  t.copy_integer("moe_top_k", "expert_used_count");
  const auto heads = t.config().required_integer("n_head");
  t.set_integer("rope.dimension_count", heads > 0 ? t.config().required_integer("n_embd") / heads : 0);
  t.require_number("rotary_emb_fraction", 1.0);
  t.require_number("rotary_scaling_factor", 1.0);
  for (const char* key : {"rotary_emb_interleaved", "prenorm", "causal", "use_rms_norm"})
    t.require_flag(key, false, false);
  const bool has_experts = t.config().integer("num_experts").value_or(0) > 0;
  if (t.config().text("activation_function").value_or("swiglu") != (has_experts ? "gelu" : "swiglu"))
    t.config().fail("the activation is not the one of this class");
}

// ALiBi; gate and up in one matrix.
void translate_jina_v2(HfTranslation& t) {
  t.set("attention.causal", false);
  t.require_text("position_embedding_type", "alibi");
  t.require_text("feed_forward_type", "geglu");
  t.require_flag("is_decoder", false, false);
}

// A rotation instead of positions; the adapters of single tasks are left out.
void translate_jina_v3(HfTranslation& t) {
  t.set("attention.causal", false);
  t.require_text("position_embedding_type", "rotary");
  t.copy_number("rotary_emb_base", "rope.freq_base");
}

// Every n-th layer sees the whole text, the others a window; each kind has a rotation of its own.
void translate_modern_bert(HfTranslation& t) {
  const JsonObject& config = t.config();
  t.set("attention.causal", false);
  t.erase("attention.layer_norm_rms_epsilon");
  t.set("attention.layer_norm_epsilon", config.number("norm_eps").value_or(1e-5));
  t.copy_integer("local_attention", "attention.sliding_window");
  t.copy_integer("global_attn_every_n_layers", "attention.sliding_window_pattern");
  t.copy_number("global_rope_theta", "rope.freq_base");
  t.copy_number("local_rope_theta", "rope.freq_base_swa");
  t.set("classifier.mean", config.text("classifier_pooling").value_or("cls") == "mean");
  t.require_text("classifier_activation", "gelu");
  if (t.layer_types().empty()) return;
  std::vector<bool> slides;
  for (const std::string& type : t.layer_types())
    slides.push_back(type == "sliding_attention");
  t.set("attention.sliding_window_pattern", slides);
}

}  // namespace quire
