// Decoders with experts that differ from Qwen3's in routing, windows or gates.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

using nlohmann::json;

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

// --- Hugging Face ----------------------------------------------------------------------------------------------------

void translate_sigmoid_experts(HfTranslation& t) {
  t.set_integer("expert_gating_func", 2);
}

void translate_minimax(HfTranslation& t) {
  t.set_integer("expert_gating_func", 2);
  t.require_flag("use_qk_norm", true, true);
  t.require_text("qk_norm_type", "per_layer");
  // Factors of the residual stream in first-generation models.
  for (const char* of : {"attention", "full_attention", "linear_attention", "mlp"}) {
    for (const char* factor : {"alpha", "beta"})
      t.require_number(fmt::format("layernorm_{}_{}", of, factor).c_str(), 1.0);
  }
  t.require_flag("postnorm", false, false);
  // Sizes of a shared expert and of dense layers, which this model does not have.
  t.require_integer("shared_intermediate_size", 0);
  for (const char* of_others : {"shared_moe_mode", "mlp_intermediate_size", "mtp_transformer_layers"})
    t.config().find(of_others);
  // 0 is linear attention, used by first-generation models.
  if (const auto kinds = t.layer_list("attn_type_list"); kinds && std::ranges::find(*kinds, 0) != kinds->end())
    t.config().fail("linear attention in 'attn_type_list' is not supported");
}

// Both generations have the same model type.
void translate_bailing(HfTranslation& t) {
  const json* names = t.config().find("architectures");
  if (names != nullptr && names->is_array() && !names->empty() && names->front() == "BailingMoeForCausalLM")
    t.config().fail(
        "the architecture 'BailingMoeForCausalLM' is not supported; the nearest known one is "
        "'BailingMoeV2ForCausalLM'");
  t.require_text("score_function", "sigmoid");
  t.require_flag("norm_head", false, false);
  for (const char* shown : {"moe_router_enable_expert_bias", "moe_router_enable_routed_scaling"})
    t.config().boolean(shown);  // shown by a tensor and by a factor
  t.set_integer("expert_gating_func", 2);
  t.config().integer("rotary_dim");
}

void translate_ernie_experts(HfTranslation& t) {
  t.copy_integer("moe_num_experts", "expert_count");
  t.copy_integer("moe_k", "expert_used_count");
  t.copy_integer("moe_layer_start_index", "leading_dense_block_count");
  t.require_integer("moe_layer_interval", 1);
  if (t.config().number("moe_norm_min").value_or(0.0) > 1e-6)
    t.config().fail("a 'moe_norm_min' that is not tiny is not supported");
  if (const auto last = t.config().integer("moe_layer_end_index"); last && *last >= 0 && *last < t.num_layers() - 1)
    t.config().fail("a 'moe_layer_end_index' before the last layer is not supported");
}

// Keys and values differ in width; sliding layers have their own heads and rotation.
void translate_mimo2(HfTranslation& t) {
  const JsonObject& config = t.config();
  const auto slides = t.layer_list("hybrid_layer_pattern");
  if (!slides) config.fail("'hybrid_layer_pattern' is missing");
  const std::int64_t heads = config.required_integer("num_key_value_heads");
  const std::int64_t local_heads = config.integer("swa_num_key_value_heads").value_or(heads);
  const std::int64_t key = config.required_integer("head_dim");
  const std::int64_t value = config.integer("v_head_dim").value_or(key);
  t.require_integer("swa_head_dim", key);
  t.require_integer("swa_v_head_dim", value);
  t.require_integer("swa_num_attention_heads", config.required_integer("num_attention_heads"));
  t.set_integer("attention.value_length", value);
  std::vector<std::int64_t> kv_heads;
  for (const std::int64_t own : *slides)
    kv_heads.push_back(own != 0 ? local_heads : heads);
  t.set("attention.head_count_kv", kv_heads);
  t.set("attention.sliding_window_pattern", *slides);
  t.copy_integer("sliding_window_size", "attention.sliding_window");
  config.integer("attention_chunk_size");  // repeats the window
  t.copy_integer("sliding_window", "attention.sliding_window");
  t.copy_number("swa_rope_theta", "rope.freq_base_swa");
  t.copy_number("attention_value_scale", "attention.value_scale");
  t.copy_number("layernorm_epsilon", "attention.layer_norm_rms_epsilon");
  for (const char* key_of_sinks : {"add_swa_attention_sink_bias", "add_full_attention_sink_bias"})
    config.boolean(key_of_sinks);  // shown by the tensors
}

}  // namespace quire
