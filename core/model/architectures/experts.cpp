// Decoders with experts that differ from Qwen3's in routing, windows or gates.
#include <cmath>

#include "core/model/architectures/registry.h"

namespace quire {

// Families whose differences are all in the keys: Ling 2, dots.
void read_keyed_experts(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  reader.read_experts(spec);
}

void read_glm4moe(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  reader.read_experts(spec, SpecReader::kSigmoidGating);
}

void read_ernie_experts(SpecReader& reader, ModelSpec& spec) {
  reader.read_experts(spec);
  renormalise_experts(spec);
}

void read_olmoe(SpecReader& reader, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers)
    layer.attention.qk_norm = QkNorm::kFullWidth;
  reader.read_experts(spec);
}

namespace {

// Layers that see the whole context have no positions.
void use_local_positions(SpecReader& reader, ModelSpec& spec, std::int64_t period) {
  const std::vector<bool> slides = reader.read_windows(spec, period);
  for (std::size_t i = 0; i < slides.size(); ++i) {
    if (!slides[i]) spec.layers[i].attention.rope = -1;
  }
}

}  // namespace

void read_exaone_experts(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  use_local_positions(reader, spec, 4);
  reader.read_experts(spec, SpecReader::kSigmoidGating);
}

// Norms on both sides of each branch; a gate for each element of attention's output.
void read_afmoe(SpecReader& reader, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.config.hidden_size));
  use_sandwich_norms(spec);
  use_local_positions(reader, spec, 4);
  for (LayerSpec& layer : spec.layers)
    layer.attention.gate = OutputGate::kFull;
  reader.read_experts(spec, SpecReader::kSigmoidGating);
}

// Routed by the layer's input, before attention. In files with windows, one layer of four sees the whole context
// without positions; readers use the published models' window and ignore the key.
void read_smallthinker(SpecReader& reader, ModelSpec& spec) {
  constexpr std::int64_t kWindow = 4096;
  constexpr std::size_t kPeriod = 4;
  const std::int64_t stated = reader.integer("attention.sliding_window").value_or(0);
  const std::int64_t window = reader.is_translated() ? stated : kWindow;
  reader.read_experts(spec, SpecReader::kSigmoidGating);
  renormalise_experts(spec);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.feed_forward.expert_activation.kind = Nonlinearity::kRelu;
    layer.feed_forward.routes_early = true;
    if (stated == 0) continue;
    if (i % kPeriod != 0) layer.attention.window = window;
    if (i % kPeriod == 0 && spec.layers.size() != kPeriod) layer.attention.rope = -1;
  }
}

void read_minimax(SpecReader& reader, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers)
    layer.attention.qk_norm = QkNorm::kFullWidth;
  reader.read_experts(spec, SpecReader::kSigmoidGating);
  renormalise_experts(spec);
}

// Keys and values of different widths; sinks if the file has them.
void read_mimo2(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  reader.read_windows_with_rope(spec, 0, true, 10000.0);
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    AttentionSpec& attention = spec.layers[static_cast<std::size_t>(i)].attention;
    attention.value_scale = reader.number("attention.value_scale").value_or(1.0);
    attention.has_sinks = reader.has_tensor(i, "attn_sinks.weight");
  }
  reader.read_experts(spec, SpecReader::kSigmoidGating);
  // The files name a gate that differs from the one used in training.
  for (LayerSpec& layer : spec.layers)
    layer.feed_forward.route.gate = RouteOptions::Gate::kSigmoid;
  renormalise_experts(spec);
}

// Layers that see the whole context rotate half of the dimensions, with the file's frequency factors.
void read_step35(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  reader.read_windows_with_rope(spec, 0, true, 10000.0);
  RopeConfig& full = spec.ropes[0];
  full.rotary_dim /= 2;
  full.frequency_divisors.resize(full.frequency_divisors.empty() ? 0 : static_cast<std::size_t>(full.rotary_dim / 2));
  reader.read_experts(spec, SpecReader::kSigmoidGating);
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    if (reader.has_tensor(i, "attn_gate.weight")) layer.attention.gate = OutputGate::kPerHead;
    FeedForwardSpec& ffn = layer.feed_forward;
    ffn.expert_activation.limit = static_cast<float>(reader.number("swiglu_clamp_exp", i).value_or(0.0));
    ffn.shared_activation.limit = static_cast<float>(reader.number("swiglu_clamp_shexp", i).value_or(0.0));
    ffn.activation.limit = ffn.shared_activation.limit;
  }
}

}  // namespace quire
