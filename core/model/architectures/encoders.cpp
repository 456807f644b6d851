// Encoders: bidirectional attention, norms after the sums (BERT, arXiv 1810.04805) or before (ModernBERT).
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

}  // namespace quire
