// Decoders with experts that differ from Qwen3's in routing, windows or gates.
#include "core/model/architectures/registry.h"

namespace quire {

namespace {

void use_sigmoid(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers)
    layer.feed_forward.route.gate = RouteOptions::Gate::kSigmoid;
}

}  // namespace

// All of it is in the keys: GLM-4.5, Ling 2, dots.
void read_keyed_experts(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  reader.read_experts(spec);
}

void read_ernie_experts(SpecReader& reader, ModelSpec& spec) {
  reader.read_experts(spec);
  renormalise_experts(spec);
}

void read_minimax(SpecReader& reader, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers)
    layer.attention.qk_norm = QkNorm::kFullWidth;
  reader.read_experts(spec, "feed_forward_length");
  use_sigmoid(spec);
  renormalise_experts(spec);
}

// Keys and values of different widths; sinks where the file has them.
void read_mimo2(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  const std::vector<bool> slides = reader.read_windows(spec, 0, true);
  RopeConfig local = spec.ropes[0];
  local.base = reader.number("rope.freq_base_swa").value_or(local.base);
  const int id = SpecReader::add_rope(spec, local);
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    AttentionSpec& attention = spec.layers[static_cast<std::size_t>(i)].attention;
    attention.value_scale = reader.number("attention.value_scale").value_or(1.0);
    attention.has_sinks = reader.has_tensor(i, "attn_sinks.weight");
    if (slides[static_cast<std::size_t>(i)]) attention.rope = id;
  }
  reader.read_experts(spec);
  use_sigmoid(spec);
  renormalise_experts(spec);
}

// Layers that see the whole context rotate half of the dimensions, with the file's frequency factors.
void read_step35(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  const std::vector<bool> slides = reader.read_windows(spec, 0, true);
  RopeConfig local = spec.ropes[0];
  local.base = reader.number("rope.freq_base_swa").value_or(local.base);
  local.frequency_divisors.clear();
  local.scaling = RopeScaling::kNone;
  RopeConfig& full = spec.ropes[0];
  full.rotary_dim /= 2;
  full.frequency_divisors.resize(full.frequency_divisors.empty() ? 0 : static_cast<std::size_t>(full.rotary_dim / 2));
  const int id = SpecReader::add_rope(spec, local);
  reader.read_experts(spec);
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    if (slides[static_cast<std::size_t>(i)]) layer.attention.rope = id;
    if (reader.has_tensor(i, "attn_gate.weight")) layer.attention.gate = OutputGate::kPerHead;
    FeedForwardSpec& ffn = layer.feed_forward;
    ffn.expert_activation.limit = static_cast<float>(reader.number("swiglu_clamp_exp", i).value_or(0.0));
    ffn.shared_activation.limit = static_cast<float>(reader.number("swiglu_clamp_shexp", i).value_or(0.0));
    ffn.activation.limit = ffn.shared_activation.limit;
  }
}

}  // namespace quire
