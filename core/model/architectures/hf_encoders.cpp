// Encoders' configuration keys beyond the common ones.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"

namespace quire {

using nlohmann::json;

namespace {

void rename(HfTranslation& t, const std::string& hf, const std::string& gguf) {
  StoredTensor tensor = t.tensors().stored(hf);
  tensor.name = gguf;
  t.tensors().add(std::move(tensor));
  t.tensors().ignore(hf);
}

// A score of the first row: a dense product, tanh, and a product with a row for each label.
void name_classifier(HfTranslation& t, const std::string& dense, const std::string& output) {
  if (!t.tensors().stores(output + ".weight")) return;
  for (const char* suffix : {".weight", ".bias"}) {
    if (t.tensors().stores(dense + suffix)) rename(t, dense + suffix, std::string("cls") + suffix);
    if (t.tensors().stores(output + suffix)) rename(t, output + suffix, std::string("cls.output") + suffix);
  }
}

}  // namespace

void translate_bert(HfTranslation& t) {
  t.set("attention.causal", false);
  t.require_text("position_embedding_type", "absolute");
  t.require_flag("is_decoder", false, false);
  name_classifier(t, "bert.pooler.dense", "classifier");
}

// Positions begin after the padding token's.
void translate_roberta(HfTranslation& t) {
  t.set("attention.causal", false);
  t.require_text("position_embedding_type", "absolute");
  t.require_flag("is_decoder", false, false);
  const std::string name = hf_prefix(t.family(), t.tensors()) + "embeddings.position_embeddings.weight";
  StoredTensor positions = t.tensors().stored(name);
  const std::int64_t first = t.config().integer("pad_token_id").value_or(1) + 1;
  if (!positions.type || positions.shape.size() != 2 || first < 1 || first >= positions.shape[0])
    t.config().fail("'pad_token_id' does not fit the table of positions");
  positions.data = positions.data.subspan(dtype_bytes(*positions.type, first * positions.shape[1]));
  positions.shape[0] -= first;
  positions.name = "position_embd.weight";
  t.set_integer("context_length", positions.shape[0]);
  t.tensors().add(std::move(positions));
  t.tensors().ignore(name);
  t.tensors().ignore("lm_head.");
  name_classifier(t, "classifier.dense", "classifier.out_proj");
}

// The class has its own names for the common sizes, and a fixed epsilon.
void translate_distilbert(HfTranslation& t) {
  t.set("attention.causal", false);
  t.copy_integer("dim", "embedding_length");
  t.copy_integer("n_layers", "block_count");
  t.copy_integer("n_heads", "attention.head_count");
  t.copy_integer("hidden_dim", "feed_forward_length");
  t.set("attention.layer_norm_epsilon", 1e-12);
  t.erase("rope.dimension_count");
  t.config().boolean("sinusoidal_pos_embds");  // shown by the table
  for (const char* of_training : {"vocab_layer_norm.", "vocab_transform.", "vocab_projector."})
    t.tensors().ignore(of_training);
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
  t.set_default("rope.freq_base", 160000.0);
  t.set_default("rope.freq_base_swa", 10000.0);
  t.set("classifier.mean", config.text("classifier_pooling").value_or("cls") == "mean");
  t.require_text("classifier_activation", "gelu");
  config.text("position_embedding_type");  // the class always rotates
  if (t.layer_types().empty()) return;
  std::vector<bool> slides;
  for (const std::string& type : t.layer_types())
    slides.push_back(type == "sliding_attention");
  t.set("attention.sliding_window_pattern", slides);
}

}  // namespace quire
