// Decoders with layer norms: attention and feed-forward side by side (Phi-2, GPT-NeoX, Command R), or not.
#include "core/model/architectures/registry.h"

namespace quire {

namespace {

void use_plain_gelu(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.is_gated = false;
    layer.feed_forward.activation.kind = Nonlinearity::kGelu;
  }
}

void use_one_norm(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.is_parallel = true;
    layer.ffn_norm = WeightRole::kNoRole;
  }
}

}  // namespace

void read_phi2(SpecReader& /*reader*/, ModelSpec& spec) {
  use_plain_gelu(spec);
  use_one_norm(spec);
}

void read_gptneox(SpecReader& reader, ModelSpec& spec) {
  use_plain_gelu(spec);
  for (LayerSpec& layer : spec.layers)
    layer.is_parallel = reader.flag("use_parallel_residual").value_or(true);
}

void read_starcoder2(SpecReader& reader, ModelSpec& spec) {
  use_plain_gelu(spec);
  reader.integer("attention.sliding_window");  // larger than the context of the published models
}

// Models without a norm before the feed-forward have both branches side by side.
void read_stablelm(SpecReader& reader, ModelSpec& spec) {
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    if (reader.has_tensor(i, "attn_q_norm.weight")) layer.attention.qk_norm = QkNorm::kLayerPerHead;
    if (reader.has_tensor(i, "ffn_norm.weight")) continue;
    layer.is_parallel = true;
    layer.ffn_norm = WeightRole::kNoRole;
  }
}

void read_command_r(SpecReader& reader, ModelSpec& spec) {
  use_one_norm(spec);
  spec.logit_scale = reader.number("logit_scale").value_or(1.0);
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.qk_norm != QkNorm::kNone) layer.attention.qk_norm = QkNorm::kLayerPerHead;
  }
}

// Layers that see the whole context have no positions.
void read_cohere2(SpecReader& reader, ModelSpec& spec) {
  read_command_r(reader, spec);
  const std::vector<bool> slides = reader.read_windows(spec, 4);
  for (std::size_t i = 0; i < slides.size(); ++i) {
    if (!slides[i]) spec.layers[i].attention.rope = -1;
  }
}

}  // namespace quire
