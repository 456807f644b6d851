// DeepSeek V2 and V3, and families that share their latent attention (arXiv 2405.04434).
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

using nlohmann::json;

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

// --- Hugging Face ----------------------------------------------------------------------------------------------------

void translate_latent(HfTranslation& t) {
  t.require_flag("rope_interleave", true, true);
}

// The number of leading dense layers is counted in the list of kinds.
void translate_glm_lite(HfTranslation& t) {
  t.require_flag("rope_interleave", true, true);
  t.set_integer("expert_gating_func", 2);
  const json* kinds = t.config().find("mlp_layer_types");
  if (kinds == nullptr) {
    t.set_integer("leading_dense_block_count", t.config().integer("first_k_dense_replace").value_or(1));
    return;
  }
  std::int64_t dense = 0;
  while (dense < std::ssize(*kinds) && (*kinds)[static_cast<std::size_t>(dense)] == "dense")
    ++dense;
  t.set_integer("leading_dense_block_count", dense);
}

// Layers are counted from one.
void translate_kimi_linear(HfTranslation& t) {
  const JsonObject& config = t.config();
  const auto linear = config.object("linear_attn_config");
  if (!linear) config.fail("'linear_attn_config' is missing");
  const json* full = linear->find("full_attn_layers");
  if (full == nullptr || !full->is_array()) linear->fail("'full_attn_layers' is missing");
  std::vector<std::int64_t> kv_heads(static_cast<std::size_t>(std::clamp<std::int64_t>(t.num_layers(), 0, 4096)), 0);
  for (const json& layer : *full) {
    const std::int64_t index = layer.is_number_integer() ? layer.get<std::int64_t>() - 1 : -1;
    if (index < 0 || index >= std::ssize(kv_heads)) linear->fail("'full_attn_layers' names a layer that is not there");
    kv_heads[static_cast<std::size_t>(index)] = 1;
  }
  t.set("attention.head_count_kv", kv_heads);
  t.set_integer("ssm.conv_kernel", linear->required_integer("short_conv_kernel_size"));
  t.set_integer("kda.head_dim", linear->required_integer("head_dim"));
  if (linear->required_integer("num_heads") != config.required_integer("num_attention_heads"))
    linear->fail("'num_heads' differs from 'num_attention_heads', which is not supported");
  t.require_flag("mla_use_nope", true, false);
  t.require_text("moe_router_activation_func", "sigmoid");
  t.require_flag("moe_renormalize", true, true);
  t.set_integer("expert_gating_func", 2);
  t.copy_integer("num_experts_per_token", "expert_used_count");
  t.copy_integer("num_expert_group", "expert_group_count");
  t.copy_integer("model_max_length", "context_length");
}

}  // namespace quire
