// Encoders: bidirectional attention, norms after the sums (BERT, arXiv 1810.04805) or before (ModernBERT).
#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

namespace {

void use_jina_v2(SpecReader& reader, LayerSpec& layer, std::int64_t index) {
  constexpr double kAlibi = 8.0;
  layer.attention.alibi = kAlibi;
  layer.attention.rope = -1;
  if (reader.has_tensor(index, "attn_q_norm.weight")) layer.attention.qk_norm = QkNorm::kLayerFull;
  if (reader.has_tensor(index, "attn_norm_2.weight")) layer.mixer_sum_norm_2 = WeightRole::kAttentionNorm2;
}

}  // namespace

void read_bert(SpecReader& reader, ModelSpec& spec) {
  const std::string& name = reader.architecture();
  spec.is_causal = false;
  spec.has_head = false;
  spec.final_norm = WeightRole::kNoRole;
  spec.embedding_norm = WeightRole::kEmbeddingNorm;
  spec.has_positions = reader.has_tensor("position_embd.weight");
  if (reader.has_tensor("token_types.weight")) {
    const auto& shape = reader.tensors().shape_of("token_types.weight");
    spec.num_token_types = shape.size() == 1 ? 1 : shape.at(0);
  }
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.mixer_norm = layer.ffn_norm = WeightRole::kNoRole;
    layer.mixer_sum_norm = WeightRole::kAttentionOutputNorm;
    layer.ffn_sum_norm = WeightRole::kLayerOutputNorm;
    FeedForwardSpec& ffn = layer.feed_forward;
    ffn.is_gated = ffn.fused_gate || reader.has_tensor(i, "ffn_gate.weight");
    ffn.activation.kind = name == "nomic-bert" ? Nonlinearity::kSilu : Nonlinearity::kGelu;
    ffn.expert_activation = ffn.activation;
    if (name == "bert") layer.attention.rope = -1;
    if (name == "jina-bert-v2") use_jina_v2(reader, layer, i);
  }
  reader.read_experts(spec);
}

// A decoder's layers with attention in both directions.
void read_eurobert(SpecReader& /*reader*/, ModelSpec& spec) {
  spec.is_causal = false;
  spec.has_head = false;
}

void read_neo_bert(SpecReader& reader, ModelSpec& spec) {
  read_eurobert(reader, spec);
  spec.final_norm = WeightRole::kEncoderOutputNorm;
}

void read_modern_bert(SpecReader& reader, ModelSpec& spec) {
  spec.is_causal = false;
  spec.has_head = false;
  spec.embedding_norm = WeightRole::kEmbeddingNorm;
  spec.scores_mean = spec.num_labels > 0 && reader.flag("classifier.mean").value_or(!reader.is_translated());
  spec.classifier_activation = Nonlinearity::kGelu;
  spec.has_classifier_norm = reader.has_tensor("cls.norm.weight");
  const int id = SpecReader::add_rope(spec, reader.local_rope(spec, 10000.0));
  const std::int64_t window = reader.integer("attention.sliding_window").value_or(0);
  const bool by_layer = reader.is_translated() && reader.is_array("attention.sliding_window_pattern");
  const std::int64_t period = by_layer ? 3 : reader.integer("attention.sliding_window_pattern").value_or(3);
  if (period < 1) reader.fail("'attention.sliding_window_pattern' is not positive");
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.feed_forward.activation.kind = Nonlinearity::kGelu;
    if (i == 0) layer.mixer_norm = WeightRole::kNoRole;
    const bool slides = by_layer ? reader.flag("attention.sliding_window_pattern", i).value_or(false) : i % period != 0;
    if (!slides || window == 0) continue;
    layer.attention.window = window;
    layer.attention.rope = id;
  }
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

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
  if (!t.layer_types().empty()) t.set("attention.sliding_window_pattern", t.layers_of({"sliding_attention"}));
}

}  // namespace quire
