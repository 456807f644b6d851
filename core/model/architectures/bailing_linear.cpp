// Ring-linear 2 (arXiv 2510.19338): Ling 2 with lightning attention in most layers.
#include <algorithm>
#include <cmath>

#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

namespace {

// ALiBi's slopes (arXiv 2108.12409), smaller in later layers.
std::vector<float> decays_of(std::int64_t num_heads, std::int64_t layer, std::int64_t num_layers) {
  const double last = std::max(1.0, static_cast<double>(num_layers - 1));
  const double share = 1.0 - static_cast<double>(layer) / last + 1e-5;
  std::int64_t power = 1;
  while (2 * power <= num_heads)
    power *= 2;
  std::vector<float> out;
  const auto add = [&](std::int64_t index, std::int64_t of) {
    const double slope = std::exp2(-8.0 * static_cast<double>(index + 1) / static_cast<double>(of));
    out.push_back(static_cast<float>(-slope * share));
  };
  for (std::int64_t i = 0; i < power; ++i)
    add(i, power);
  for (std::int64_t i = 0; i < num_heads - power; ++i)
    add(2 * i, 2 * power);
  return out;
}

}  // namespace

// Layers with an output gate have lightning attention.
void read_bailing_linear(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  RecurrentSpec net;
  net.key_heads = net.value_heads = spec.config.num_heads;
  net.key_dim = net.value_dim = spec.config.head_dim;
  net.num_groups = reader.integer("ssm.group_count").value_or(1);
  net.silu_inputs = reader.flag("attention.silu_inputs").value_or(false);
  const std::int64_t num_heads = std::clamp<std::int64_t>(net.value_heads, 1, 1 << 14);
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    if (!reader.has_tensor(i, "attn_gate.weight")) continue;
    layer.mixer = Mixer::kLightning;
    layer.recurrent = net;
    layer.recurrent.decays = decays_of(num_heads, i, spec.config.num_layers);
  }
  reader.read_experts(spec);
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

void translate_bailing_linear(HfTranslation& t) {
  const JsonObject& config = t.config();
  translate_bailing(t);
  config.integer("layer_group_size");  // shown by the tensors
  t.require_flag("linear_rope", true, true);
  t.set_integer("ssm.group_count", config.integer("group_norm_size").value_or(1));
  const bool older = config.boolean("linear_silu").value_or(false);
  t.set("attention.silu_inputs", config.boolean("use_linear_silu").value_or(older));
}

}  // namespace quire
