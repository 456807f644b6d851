// DeepSeek V2 and V3, and families that share their latent attention (arXiv 2405.04434).
#include <cmath>

#include "core/model/architectures/registry.h"

namespace quire {

namespace {

void use_latent(SpecReader& reader, LayerSpec& layer, std::int64_t index) {
  const std::int64_t key = reader.integer("attention.key_length_mla").value_or(layer.attention.key_dim);
  const std::int64_t value = reader.integer("attention.value_length_mla").value_or(layer.attention.value_dim);
  LatentSpec latent;
  latent.query_rank = reader.has_tensor(index, "attn_q.weight") ? 0 : reader.required_integer("attention.q_lora_rank");
  reader.integer("attention.q_lora_rank");
  latent.kv_rank = reader.required_integer("attention.kv_lora_rank");
  latent.rope_dim = reader.required_integer("rope.dimension_count");
  latent.nope_dim = key - latent.rope_dim;
  latent.value_dim = value;
  latent.merged_kv = reader.has_tensor(index, "attn_kv_b.weight");
  layer.mixer = Mixer::kLatent;
  layer.latent = latent;
  layer.attention.num_kv_heads = 1;
  layer.attention.scale = 1.0 / std::sqrt(static_cast<double>(key));
}

}  // namespace

void read_deepseek2(SpecReader& reader, ModelSpec& spec) {
  reader.drop_next_token_layers(spec);
  const RopeConfig& rope = spec.ropes[0];
  // The file holds a tenth of the multiplier. DeepSeek's own scaling leaves cos and sin unchanged.
  const double multiplier = reader.number("rope.scaling.yarn_log_multiplier").value_or(0.0) / 0.1;
  if (reader.architecture() == "mistral4") {
    use_log_multiplier(spec, multiplier);
  } else if (rope.scaling == RopeScaling::kYarn && multiplier != 0.0) {
    spec.ropes[0].attention_factor = 1.0;
  }
  const bool is_yarn = rope.scaling == RopeScaling::kYarn;
  double magnitude = is_yarn ? rope.attention_factor * yarn_attention_factor(rope.factor, multiplier) : 1.0;
  // The class scales the softmax by the multiplier alone.
  if (is_yarn && reader.is_translated()) magnitude = yarn_attention_factor(rope.factor, multiplier);
  const double temperature = reader.number("attention.temperature_scale").value_or(0.0);
  const double original = reader.number("rope.scaling.original_context_length").value_or(0.0);
  const double length = reader.number("attention.temperature_length").value_or(original);
  if (temperature != 0.0 && length < 1.0) reader.fail("the temperature's context length is missing");
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    use_latent(reader, layer, i);
    layer.attention.scale *= magnitude * magnitude;
    layer.attention.temperature = temperature;
    if (temperature != 0.0) layer.attention.temperature_length = length;
  }
  // GLM-4.7-Flash's files leave the gate out.
  constexpr std::int64_t kGlmVocabulary = 154880;
  const bool is_glm =
      (spec.layers.size() == 47 || spec.layers.size() == 48) && spec.config.vocab_size == kGlmVocabulary;
  reader.read_experts(spec, is_glm ? SpecReader::kSigmoidGating : SpecReader::kSoftmaxGating);
}

// Delta nets with a decay for each channel; every fourth layer has latent attention without positions.
void read_kimi_linear(SpecReader& reader, ModelSpec& spec) {
  RecurrentSpec net;
  net.taps = reader.required_integer("ssm.conv_kernel");
  net.key_dim = net.value_dim = reader.required_integer("kda.head_dim");
  net.key_heads = net.value_heads = spec.config.num_heads;
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    if (layer.attention.num_kv_heads == 0) {
      layer.mixer = Mixer::kKimiDelta;
      layer.recurrent = net;
    } else {
      use_latent(reader, layer, i);
      layer.attention.rope = -1;
    }
  }
  spec.delta_eps = spec.config.rms_eps;
  reader.read_experts(spec, SpecReader::kSigmoidGating);
  renormalise_experts(spec);
}

}  // namespace quire
