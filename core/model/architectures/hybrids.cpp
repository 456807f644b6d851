// Decoders with short convolutions (LFM2), Mamba (arXiv 2312.00752) or Mamba-2 (arXiv 2405.21060) in most layers.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

using nlohmann::json;

namespace {

RecurrentSpec read_mamba2(SpecReader& reader, std::int64_t layer) {
  RecurrentSpec net;
  net.taps = reader.required_integer("ssm.conv_kernel");
  net.key_dim = reader.required_integer("ssm.state_size");
  net.inner_size = reader.required_integer("ssm.inner_size");
  net.value_heads = reader.required_integer("ssm.time_step_rank");
  net.num_groups = reader.required_integer("ssm.group_count");
  if (net.value_heads < 1 || net.num_groups < 1 || net.inner_size % net.value_heads != 0 ||
      net.value_heads % net.num_groups != 0) {
    reader.fail("the sizes of the state-space layers do not fit");
  }
  net.value_dim = net.inner_size / net.value_heads;
  net.has_norm = reader.has_tensor(layer, "ssm_norm.weight");
  return net;
}

}  // namespace

void read_lfm2(SpecReader& reader, ModelSpec& spec) {
  spec.final_norm = WeightRole::kLfmOutputNorm;
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.num_kv_heads != 0) continue;
    layer.mixer = Mixer::kShortConv;
    layer.recurrent.taps = reader.required_integer("shortconv.l_cache");
    layer.recurrent.inner_size = spec.config.hidden_size;
  }
  reader.read_experts(spec);
  renormalise_experts(spec);
}

void read_granite_hybrid(SpecReader& reader, ModelSpec& spec) {
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    if (layer.attention.num_kv_heads != 0) continue;
    layer.mixer = Mixer::kMamba2;
    layer.recurrent = read_mamba2(reader, i);
  }
  read_granite(reader, spec);
}

// Each layer is a single branch: a state space, attention without positions, or a feed-forward.
void read_nemotron_h(SpecReader& reader, ModelSpec& spec) {
  using Kind = FeedForwardSpec::Kind;
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.is_gated = false;
    layer.feed_forward.activation.kind = Nonlinearity::kReluSquared;
    layer.feed_forward.expert_activation = layer.feed_forward.shared_activation = layer.feed_forward.activation;
  }
  reader.read_experts(spec);
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    FeedForwardSpec& ffn = layer.feed_forward;
    layer.attention.rope = -1;
    layer.ffn_norm = WeightRole::kNoRole;
    if (reader.integer("feed_forward_length", i).value_or(0) > 0) {
      layer.mixer = Mixer::kNone;
      layer.mixer_norm = WeightRole::kNoRole;
      layer.ffn_norm = WeightRole::kAttentionNorm;
      ffn.route.gate = RouteOptions::Gate::kSigmoid;
      if (reader.has_tensor(i, "ffn_latent_down.weight"))
        ffn.latent_size = reader.shape_of(i, "ffn_latent_down.weight").at(0);
      continue;
    }
    ffn = {};
    ffn.kind = Kind::kNone;
    if (layer.attention.num_kv_heads != 0) continue;
    layer.mixer = Mixer::kMamba2;
    layer.recurrent = read_mamba2(reader, i);
  }
  reader.integer("moe_latent_size");
}

// Attention and a state space see the same input; their outputs are added.
void read_falcon_h1(SpecReader& reader, ModelSpec& spec) {
  if (reader.is_translated()) {
    spec.embedding_scale = reader.number("embedding_scale").value_or(1.0);
    spec.scales_media = true;
    spec.logit_scale = reader.number("logit_scale").value_or(1.0);
  }
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.mixer = Mixer::kAttentionAndMamba2;
    layer.ffn_norm = WeightRole::kFfnNorm;
    layer.recurrent = read_mamba2(reader, i);
  }
}

namespace {

RecurrentSpec read_first_mamba(SpecReader& reader, StepNorm norm) {
  RecurrentSpec net;
  net.taps = reader.required_integer("ssm.conv_kernel");
  net.key_dim = reader.required_integer("ssm.state_size");
  net.inner_size = reader.required_integer("ssm.inner_size");
  net.step_rank = reader.required_integer("ssm.time_step_rank");
  net.step_norm = norm;
  return net;
}

// Leaves the mixer as the layer's only branch.
void drop_feed_forward(LayerSpec& layer) {
  layer.ffn_norm = WeightRole::kNoRole;
  layer.feed_forward = {};
  layer.feed_forward.kind = FeedForwardSpec::Kind::kNone;
}

}  // namespace

void read_mamba(SpecReader& reader, ModelSpec& spec) {
  const bool has_norms = reader.flag("ssm.dt_b_c_rms").value_or(false);
  RecurrentSpec net = read_first_mamba(reader, has_norms ? StepNorm::kUnit : StepNorm::kNone);
  net.step_eps = reader.number("ssm.dt_b_c_rms_epsilon").value_or(spec.config.rms_eps);
  for (LayerSpec& layer : spec.layers) {
    drop_feed_forward(layer);
    layer.mixer = Mixer::kMamba;
    layer.recurrent = net;
  }
}

void read_pure_mamba2(SpecReader& reader, ModelSpec& spec) {
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    drop_feed_forward(layer);
    layer.mixer = Mixer::kMamba2;
    layer.recurrent = read_mamba2(reader, i);
  }
}

// Mamba with norms, and a few layers of attention without positions; experts in some layers.
void read_jamba(SpecReader& reader, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.attention.rope = -1;
    if (layer.attention.num_kv_heads != 0) continue;
    layer.mixer = Mixer::kMamba;
    layer.recurrent = read_first_mamba(reader, StepNorm::kWeighted);
    layer.recurrent.step_eps = spec.config.rms_eps;
  }
  reader.read_experts(spec);
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

namespace {

constexpr std::int64_t kAnyContext = 1 << 20;  // context of models without positions

// Refuses limits of a state space's step: the step is not clamped.
void refuse_step_limits(const HfTranslation& t) {
  for (const char* key : {"time_step_limit", "mamba_dt_limit"}) {
    const json* limit = t.config().find(key);
    if (limit == nullptr) continue;
    // Infinity as null, by its name, or in newer files' form: {"__float__": "Infinity"}.
    const bool is_open =
        limit->is_array() && limit->size() == 2 && (*limit)[0].is_number() && (*limit)[0].get<double>() == 0.0 &&
        ((*limit)[1].is_null() || (*limit)[1].is_string() || (*limit)[1] == json{{"__float__", "Infinity"}} ||
         ((*limit)[1].is_number() && (*limit)[1].get<double>() > 1e30));
    if (!is_open) t.config().fail(fmt::format("'{}' that limits the step is not supported", key));
  }
}

// Reads a class's own prefixed keys.
void read_mamba2(HfTranslation& t, std::int64_t inner) {
  const JsonObject& config = t.config();
  t.copy_integer("mamba_d_conv", "ssm.conv_kernel");
  t.copy_integer("mamba_d_state", "ssm.state_size");
  t.copy_integer("mamba_n_groups", "ssm.group_count");
  t.copy_integer("mamba_n_heads", "ssm.time_step_rank");
  t.set_integer("ssm.inner_size", inner);
  const json* head = config.find("mamba_d_head");
  if (head != nullptr && head->is_number_integer() &&
      head->get<std::int64_t>() * config.required_integer("mamba_n_heads") != inner)
    config.fail("the sizes of the state-space layers do not fit");
  refuse_step_limits(t);
}

}  // namespace

void translate_lfm2(HfTranslation& t) {
  t.config().find("num_heads");  // older name of num_attention_heads
  t.copy_integer("conv_L_cache", "shortconv.l_cache");
  t.set_kv_heads(t.layers_of({"full_attention"}));
}

void translate_lfm2_experts(HfTranslation& t) {
  translate_lfm2(t);
  t.set_integer("expert_gating_func", 2);
}

// Without experts, the shared feed-forward is the only one.
void translate_granite_hybrid(HfTranslation& t) {
  const JsonObject& config = t.config();
  if (t.layer_types().empty())
    t.set_layer_types(std::vector<std::string>(static_cast<std::size_t>(t.num_layers()), "mamba"));
  t.set_kv_heads(t.layers_of({"attention", "full_attention"}));
  read_mamba2(t, config.integer("mamba_expand").value_or(2) * config.required_integer("hidden_size"));
  t.require_text("normalization_function", "rmsnorm");
  t.set("rope.scaling.finetuned", config.text("position_embedding_type").value_or("") == "rope");
  if (config.integer("num_local_experts").value_or(0) == 0)
    t.set_integer("feed_forward_length", config.required_integer("shared_intermediate_size"));
}

namespace {

double factor_of(const JsonObject& config, const char* key, std::size_t index) {
  const json* list = config.find(key);
  if (list == nullptr) return 1.0;
  if (!list->is_array() || index >= list->size() || !(*list)[index].is_number())
    config.fail(fmt::format("'{}' has no number {}", key, index));
  return (*list)[index].get<double>();
}

}  // namespace

// Multipliers of each product's input and output: applied as factors of the matrices.
void translate_falcon_h1(HfTranslation& t) {
  const JsonObject& config = t.config();
  const auto number = [&](const char* key) { return config.number(key).value_or(1.0); };
  const std::int64_t inner =
      config.integer("mamba_d_ssm")
          .value_or(config.integer("mamba_expand").value_or(2) * config.required_integer("hidden_size"));
  read_mamba2(t, inner);
  if (config.boolean("mamba_rms_norm").value_or(false)) t.require_flag("mamba_norm_before_gate", false, true);
  config.boolean("mamba_norm_before_gate");
  t.set("embedding_scale", number("embedding_multiplier"));
  t.set("logit_scale", number("lm_head_multiplier"));
  const double in = number("attention_in_multiplier");
  const std::pair<const char*, double> factors[] = {{"attn_q", in},
                                                    {"attn_k", in * number("key_multiplier")},
                                                    {"attn_v", in},
                                                    {"attn_output", number("attention_out_multiplier")},
                                                    {"ffn_gate", factor_of(config, "mlp_multipliers", 0)},
                                                    {"ffn_down", factor_of(config, "mlp_multipliers", 1)},
                                                    {"ssm_out", number("ssm_out_multiplier")}};
  const std::int64_t groups = config.integer("mamba_n_groups").value_or(1) * config.required_integer("mamba_d_state");
  const std::int64_t rows[] = {inner, inner, groups, groups, config.required_integer("mamba_n_heads")};
  std::vector<float> in_factors;
  for (std::size_t part = 0; part < std::size(rows); ++part) {
    const double factor = number("ssm_in_multiplier") * factor_of(config, "ssm_multipliers", part);
    in_factors.insert(in_factors.end(), static_cast<std::size_t>(std::clamp<std::int64_t>(rows[part], 0, 1 << 24)),
                      static_cast<float>(factor));
  }
  for (std::int64_t i = 0; i < t.num_layers(); ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    for (const auto& [stem, factor] : factors)
      t.tensors().add(float_tensor(prefix + stem + ".scale", {1}, {static_cast<float>(factor)}));
    t.tensors().add(float_tensor(prefix + "ssm_in.row_scale", {std::ssize(in_factors)}, in_factors));
  }
}

// A letter for each layer: M state space, * attention, - feed-forward, E experts.
void translate_nemotron_h(HfTranslation& t) {
  const JsonObject& config = t.config();
  std::vector<std::string> kinds;
  if (const auto pattern = config.text("hybrid_override_pattern")) {
    for (const char letter : *pattern) {
      const std::size_t at = std::string_view("M*-E").find(letter);
      if (at == std::string_view::npos) config.fail("'hybrid_override_pattern' has a letter that is not M, *, - or E");
      kinds.emplace_back(std::array{"mamba", "attention", "mlp", "moe"}[at]);
    }
    t.set_layer_types(kinds);
  }
  if (t.layer_types().empty()) config.fail("neither 'hybrid_override_pattern' nor 'layers_block_type' is there");
  t.set_integer("block_count", std::ssize(t.layer_types()));
  t.set_kv_heads(t.layers_of({"attention", "full_attention"}));
  std::vector<std::int64_t> sizes;
  for (const std::string& kind : t.layer_types()) {
    const bool is_dense = kind == "mlp";
    const bool has_experts = kind == "moe";
    sizes.push_back(is_dense      ? config.required_integer("intermediate_size")
                    : has_experts ? config.required_integer("moe_intermediate_size")
                                  : 0);
  }
  t.set("feed_forward_length", sizes);
  if (const auto dim = config.integer("attention_head_dim"); dim && !config.has("head_dim")) {
    t.set_integer("attention.key_length", *dim);
    t.set_integer("attention.value_length", *dim);
  }
  t.copy_integer("conv_kernel", "ssm.conv_kernel");
  t.copy_integer("ssm_state_size", "ssm.state_size");
  t.copy_integer("n_groups", "ssm.group_count");
  t.copy_integer("mamba_num_heads", "ssm.time_step_rank");
  t.set_integer("ssm.inner_size",
                config.required_integer("mamba_num_heads") * config.required_integer("mamba_head_dim"));
  t.copy_number("layer_norm_epsilon", "attention.layer_norm_rms_epsilon");
  t.require_text("mamba_hidden_act", "silu");
  config.find("time_step_rank");  // Mamba-1's; the class does not use it
  refuse_step_limits(t);
}

namespace {

// Sets the rank of a Mamba layer's step: a sixteenth of the width if the key is absent or "auto".
void set_step_rank(HfTranslation& t, const char* key) {
  const json* rank = t.config().find(key);
  const bool is_stated = rank != nullptr && rank->is_number_integer();
  const std::int64_t hidden = t.config().required_integer("hidden_size");
  t.set_integer("ssm.time_step_rank", is_stated ? rank->get<std::int64_t>() : (hidden + 15) / 16);
}

}  // namespace

void translate_mamba(HfTranslation& t) {
  const JsonObject& config = t.config();
  const std::int64_t hidden = config.required_integer("hidden_size");
  const std::int64_t expand = config.integer("expand").value_or(2);
  t.set_integer("context_length", kAnyContext);
  t.set_integer("attention.head_count", 0);
  t.set_integer("feed_forward_length", 0);
  t.set_integer("ssm.inner_size", config.integer("intermediate_size").value_or(expand * hidden));
  t.copy_integer("conv_kernel", "ssm.conv_kernel");
  t.copy_integer("state_size", "ssm.state_size");
  set_step_rank(t, "time_step_rank");
  t.copy_number("layer_norm_epsilon", "attention.layer_norm_rms_epsilon");
  t.set("ssm.dt_b_c_rms", config.text("model_type").value_or("") == "falcon_mamba");
  t.copy_number("mixer_rms_eps", "ssm.dt_b_c_rms_epsilon");
  t.erase("attention.layer_norm_epsilon");
}

void translate_mamba2(HfTranslation& t) {
  const JsonObject& config = t.config();
  t.set_integer("context_length", kAnyContext);
  t.set_integer("attention.head_count", 0);
  t.set_integer("feed_forward_length", 0);
  for (const char* key : {"attention.key_length", "attention.value_length"})
    t.erase(key);
  t.set_integer("ssm.inner_size", config.required_integer("num_heads") * config.required_integer("head_dim"));
  t.copy_integer("conv_kernel", "ssm.conv_kernel");
  t.copy_integer("state_size", "ssm.state_size");
  t.copy_integer("n_groups", "ssm.group_count");
  t.copy_integer("num_heads", "ssm.time_step_rank");
  t.copy_number("layer_norm_epsilon", "attention.layer_norm_rms_epsilon");
  t.require_flag("rms_norm", true, true);
  for (const char* key : {"time_step_rank", "norm_before_gate"})
    config.find(key);  // the class ignores them
  refuse_step_limits(t);
}

// Every period-th layer has attention, counted from an offset.
void translate_jamba(HfTranslation& t) {
  const JsonObject& config = t.config();
  const std::int64_t period = config.integer("attn_layer_period").value_or(8);
  const std::int64_t offset = config.integer("attn_layer_offset").value_or(4);
  if (period < 1 || offset < 0) config.fail("'attn_layer_period' or 'attn_layer_offset' is out of range");
  std::vector<bool> attends;
  for (std::int64_t i = 0; i < t.num_layers(); ++i)
    attends.push_back(i % period == offset);
  t.set_kv_heads(attends);
  t.set_integer("ssm.inner_size", config.integer("mamba_expand").value_or(2) * config.required_integer("hidden_size"));
  t.copy_integer("mamba_d_conv", "ssm.conv_kernel");
  t.copy_integer("mamba_d_state", "ssm.state_size");
  set_step_rank(t, "mamba_dt_rank");
  for (const char* key : {"expert_layer_period", "expert_layer_offset"})
    config.integer(key);  // shown by the tensors
}

}  // namespace quire
