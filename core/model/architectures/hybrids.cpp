// Decoders with short convolutions (LFM2), Mamba (arXiv 2312.00752) or Mamba-2 (arXiv 2405.21060) in most layers.
#include "core/model/architectures/registry.h"

namespace quire {

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

}  // namespace quire
