// Qwen3.5 and Qwen3-Next: gated delta nets (arXiv 2412.06464); every fourth layer is attention.
#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

void read_qwen35(SpecReader& reader, ModelSpec& spec) {
  const bool keeps_next_tokens = reader.keeps_next_token_layer();
  if (!keeps_next_tokens) reader.drop_next_token_layers(spec);
  const bool is_next = reader.architecture() == "qwen3next";
  const std::int64_t interval = reader.integer("full_attention_interval").value_or(4);
  if (interval < 1) reader.fail("'full_attention_interval' is not positive");
  RecurrentSpec net;
  net.taps = reader.required_integer("ssm.conv_kernel");
  net.key_heads = reader.required_integer("ssm.group_count");
  net.value_heads = reader.required_integer("ssm.time_step_rank");
  net.key_dim = reader.required_integer("ssm.state_size");
  net.inner_size = reader.required_integer("ssm.inner_size");
  if (net.value_heads < 1 || net.inner_size % net.value_heads != 0) reader.fail("the delta net's sizes do not fit");
  net.value_dim = net.inner_size / net.value_heads;
  // Hugging Face files group the value heads by key head in both families.
  net.grouped_heads = reader.flag("ssm.grouped_heads").value_or(false) || is_next;
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.ffn_norm = WeightRole::kPostAttentionNorm;
    const bool has_array = reader.is_array("attention.recurrent_layers");
    const bool is_recurrent =
        has_array ? reader.flag("attention.recurrent_layers", i).value_or(false) : (i + 1) % interval != 0;
    const bool is_next_token_layer = keeps_next_tokens && i + 1 == spec.config.num_layers;
    if (is_recurrent && !is_next_token_layer) {
      layer.mixer = Mixer::kDeltaNet;
      layer.recurrent = net;
      layer.recurrent.fused_ba = reader.has_tensor(i, "ssm_ba.weight");
    } else {
      layer.attention.gate = OutputGate::kInQuery;
      layer.attention.qk_norm = QkNorm::kPerHead;
    }
  }
  spec.delta_eps = spec.config.rms_eps;
  reader.read_experts(spec);
  renormalise_experts(spec);
  if (keeps_next_tokens) reader.take_next_token_layer(spec);
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

void translate_qwen_hybrid(HfTranslation& t) {
  const JsonObject& config = t.config();
  t.copy_integer("linear_conv_kernel_dim", "ssm.conv_kernel");
  t.copy_integer("linear_key_head_dim", "ssm.state_size");
  t.copy_integer("linear_num_key_heads", "ssm.group_count");
  t.copy_integer("linear_num_value_heads", "ssm.time_step_rank");
  t.copy_integer("full_attention_interval", "full_attention_interval");
  t.set_integer("ssm.inner_size",
                config.required_integer("linear_num_value_heads") * config.required_integer("linear_value_head_dim"));
  t.set("ssm.grouped_heads", true);
  t.require_flag("attn_output_gate", true, true);
  if (!t.layer_types().empty()) t.set("attention.recurrent_layers", t.layers_of({"linear_attention"}));
}

}  // namespace quire
