#include "core/model/architectures/weight_roles.h"

#include <fmt/core.h>

#include <array>

#include "core/model/architectures/model_spec.h"

namespace quire {

namespace {

using Role = WeightRole;
using Form = WeightForm;

// In the order of WeightRole.
constexpr std::array<RoleInfo, kNumWeightRoles> kRoles{{
    {"token_embd", "embed_tokens"},
    {"position_embd", ""},
    {"token_types", ""},
    {"token_embd_norm", ""},
    {"output_norm", "norm"},
    {"token_embd_norm", "embedding_norm"},
    {"enc.output_norm", ""},
    {"output", "^lm_head"},
    {"cls", ""},
    {"cls.norm", ""},
    {"cls.output", ""},
    {"per_layer_token_embd", "embed_tokens_per_layer"},
    {"per_layer_model_proj", "per_layer_model_projection"},
    {"per_layer_proj_norm", "per_layer_projection_norm"},
    {"dense_2", ""},
    {"dense_3", ""},
    {"altup_proj", "altup_projections.#"},
    {"altup_unembd_proj", "altup_unembed_projections.#"},
    {"attn_norm", "input_layernorm"},
    {"attn_norm_2", ""},
    {"post_attention_norm", ""},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_ffw_norm", ""},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"attn_output_norm", ""},
    {"layer_output_norm", ""},
    {"attn_sub_norm", ""},
    {"ffn_sub_norm", ""},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_sinks", "self_attn.sinks$"},
    {"attn_gate", ""},
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_k_b", ""},
    {"attn_v_b", ""},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_inp", "router.scale$", ".scale"},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias$", ".bias"},
    {"ffn_gate_exps", "mlp.experts.#.gate_proj"},
    {"ffn_up_exps", "mlp.experts.#.up_proj"},
    {"ffn_gate_up_exps", ""},
    {"ffn_down_exps", "mlp.experts.#.down_proj"},
    {"ffn_down_exps", "router.per_expert_scale$", ".scale"},
    {"ffn_exps_bias", ""},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_latent_down", ""},
    {"ffn_latent_up", ""},
    {"ssm_in", ""},
    {"ssm_conv1d", "linear_attn.conv1d"},
    {"ssm_conv1d_q", ""},
    {"ssm_conv1d_k", ""},
    {"ssm_conv1d_v", ""},
    {"ssm_x", ""},
    {"ssm_dt", ""},
    {"ssm_dt_norm", ""},
    {"ssm_b_norm", ""},
    {"ssm_c_norm", ""},
    {"ssm_dt", "linear_attn.dt_bias$", ".bias"},
    {"ssm_a", "linear_attn.A_log$", ""},
    {"ssm_d", "", ""},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"},
    {"ssm_alpha", "linear_attn.in_proj_a"},
    {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_ba", "linear_attn.in_proj_ba"},
    {"ssm_f_a", ""},
    {"ssm_f_b", ""},
    {"ssm_g_a", ""},
    {"ssm_g_b", ""},
    {"shortconv.in_proj", "conv.in_proj"},
    {"shortconv.conv", "conv.conv"},
    {"shortconv.out_proj", "conv.out_proj"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"layer_output_scale", "layer_scalar$"},
    {"altup_router", "altup.modality_router"},
    {"altup_router_norm", "altup.router_norm"},
    {"altup_predict_coef", "altup.prediction_coefs"},
    {"altup_correct_coef", "altup.correction_coefs"},
    {"altup_correct_scale", "altup.correct_output_scale$"},
    {"laurel_l", "laurel.linear_left"},
    {"laurel_r", "laurel.linear_right"},
    {"laurel_post_norm", "laurel.post_laurel_norm"},
    {"nextn.eh_proj", ""},
    {"nextn.enorm", ""},
    {"nextn.hnorm", ""},
    {"nextn.shared_head_norm", ""},
}};

class Needs {
 public:
  explicit Needs(const ModelSpec& spec) : spec_(spec), hidden_(spec.config.hidden_size) {}

  std::vector<WeightNeed> of_model();
  std::vector<WeightNeed> of_layer(const LayerSpec& layer);
  std::vector<WeightNeed> of_next_tokens();

 private:
  void vector(Role role, std::int64_t size, bool is_optional = false) {
    if (role != Role::kNoRole) out_.push_back({.role = role, .cols = size, .is_optional = is_optional});
  }
  void convolution(Role role, std::int64_t channels, std::int64_t taps) {
    vector(role, channels * taps);
    out_.back().taps = taps;
    out_.back().bias_size = channels;
  }
  void product(Role role, Role product, std::int64_t rows, std::int64_t cols) {
    out_.push_back({.role = role, .form = Form::kProduct, .product = product, .rows = rows, .cols = cols});
  }
  void alone(Role role, std::int64_t rows, std::int64_t cols) { product(role, role, rows, cols); }
  void experts(Role role, Role product, std::int64_t rows, std::int64_t cols, std::int64_t count) {
    out_.push_back(
        {.role = role, .form = Form::kExperts, .product = product, .rows = rows, .cols = cols, .num_experts = count});
  }
  void rows(Role role, std::int64_t count, std::int64_t cols) {
    out_.push_back({.role = role, .form = Form::kRows, .rows = count, .cols = cols});
  }

  void attention(const AttentionSpec& attention);
  void latent(const LayerSpec& layer);
  void delta_net(const RecurrentSpec& net);
  void kimi_delta(const RecurrentSpec& net);
  void mamba(const RecurrentSpec& net);
  void mamba2(const RecurrentSpec& net);
  void mixer(const LayerSpec& layer);
  void dense(const FeedForwardSpec& ffn);
  void with_experts(const FeedForwardSpec& ffn);
  void streams();

  const ModelSpec& spec_;
  std::int64_t hidden_;
  std::vector<WeightNeed> out_;
};

std::vector<WeightNeed> Needs::of_model() {
  const ModelConfig& config = spec_.config;
  rows(Role::kTokenEmbedding, config.vocab_size, hidden_);
  if (spec_.has_positions) rows(Role::kPositions, config.max_context, hidden_);
  if (spec_.num_token_types > 0) vector(Role::kTokenTypes, spec_.num_token_types * hidden_);
  vector(spec_.embedding_norm, hidden_);
  if (spec_.per_layer_size > 0) {
    const std::int64_t width = spec_.per_layer_size * config.num_layers;
    rows(Role::kPerLayerEmbedding, spec_.per_layer_rows, width);
    alone(Role::kPerLayerProjection, width, hidden_);
    vector(Role::kPerLayerNorm, spec_.per_layer_size);
  }
  if (spec_.num_streams > 1) {
    for (const Role role : {Role::kStreamIn, Role::kStreamOut})
      experts(role, role, hidden_, hidden_, spec_.num_streams - 1);
  }
  vector(spec_.final_norm, hidden_);
  if (spec_.has_head) alone(Role::kHead, config.vocab_size, hidden_);
  std::int64_t width = hidden_;
  for (std::size_t i = 0; i < spec_.dense_sizes.size(); ++i) {
    alone(i == 0 ? Role::kDense2 : Role::kDense3, spec_.dense_sizes[i], width);
    width = spec_.dense_sizes[i];
  }
  if (spec_.has_classifier_dense) alone(Role::kClassifier, hidden_, hidden_);
  if (spec_.has_classifier_norm) vector(Role::kClassifierNorm, hidden_);
  if (spec_.num_labels > 0) alone(Role::kClassifierOutput, spec_.num_labels, hidden_);
  return std::move(out_);
}

void Needs::attention(const AttentionSpec& attention) {
  const std::int64_t query = attention.num_heads * attention.key_dim;
  const std::int64_t key = attention.num_kv_heads * attention.key_dim;
  const std::int64_t value = attention.num_kv_heads * attention.value_dim;
  const bool has_kv = attention.kv_source < 0;
  if (attention.fused_qkv) {
    product(Role::kQkv, Role::kQuery, query + key + value, hidden_);
  } else {
    const bool with_gate = attention.gate == OutputGate::kInQuery;
    product(Role::kQuery, Role::kQuery, with_gate ? 2 * query : query, hidden_);
    if (with_gate) out_.back().gate_rows = attention.key_dim;
    if (has_kv) product(Role::kKey, Role::kQuery, key, hidden_);
    if (has_kv && !attention.value_is_key) product(Role::kValue, Role::kQuery, value, hidden_);
  }
  if (attention.gate == OutputGate::kPerHead) alone(Role::kAttentionGate, attention.num_heads, hidden_);
  if (attention.gate == OutputGate::kFull)
    alone(Role::kAttentionGate, attention.num_heads * attention.value_dim, hidden_);
  switch (attention.qk_norm) {
    case QkNorm::kNone: break;
    case QkNorm::kPerHead:
      vector(Role::kQueryNorm, attention.key_dim);
      if (has_kv) vector(Role::kKeyNorm, attention.key_dim);
      break;
    default: vector(Role::kQueryNorm, query); vector(Role::kKeyNorm, key);
  }
  if (attention.has_sinks) vector(Role::kSinks, attention.num_heads);
  const std::int64_t width = attention.num_heads * attention.value_dim;
  if (attention.output_norm) vector(Role::kAttentionSubNorm, width);
  alone(Role::kAttentionOutput, hidden_, width);
}

void Needs::latent(const LayerSpec& layer) {
  const LatentSpec& latent = layer.latent;
  const std::int64_t heads = layer.attention.num_heads;
  const std::int64_t query = heads * (latent.nope_dim + latent.rope_dim);
  if (latent.query_rank > 0) {
    alone(Role::kQueryA, latent.query_rank, hidden_);
    vector(Role::kQueryANorm, latent.query_rank);
    alone(Role::kQueryB, query, latent.query_rank);
  } else {
    alone(Role::kQuery, query, hidden_);
  }
  alone(Role::kKvA, latent.kv_rank + latent.rope_dim, hidden_);
  vector(Role::kKvANorm, latent.kv_rank);
  if (latent.merged_kv) {
    experts(Role::kKvB, Role::kKvB, latent.nope_dim + latent.value_dim, latent.kv_rank, heads);
  } else {
    experts(Role::kKeyB, Role::kKeyB, latent.kv_rank, latent.nope_dim, heads);
    experts(Role::kValueB, Role::kValueB, latent.value_dim, latent.kv_rank, heads);
  }
  alone(Role::kAttentionOutput, hidden_, heads * latent.value_dim);
}

void Needs::delta_net(const RecurrentSpec& net) {
  const std::int64_t keys = net.key_heads * net.key_dim;
  const std::int64_t values = net.value_heads * net.value_dim;
  product(Role::kQkv, Role::kQuery, 2 * keys + values, hidden_);
  product(Role::kAttentionGate, Role::kQuery, values, hidden_);
  if (net.fused_ba) {
    const std::int64_t share = net.value_heads / net.key_heads;
    product(Role::kSsmBa, Role::kQuery, 2 * net.value_heads, hidden_);
    out_.back().gate_rows = share;
  } else {
    product(Role::kSsmBeta, Role::kQuery, net.value_heads, hidden_);
    product(Role::kSsmAlpha, Role::kQuery, net.value_heads, hidden_);
  }
  convolution(Role::kSsmConv, 2 * keys + values, net.taps);
  vector(Role::kSsmDt, net.value_heads);
  vector(Role::kSsmA, net.value_heads);
  vector(Role::kSsmNorm, net.value_dim);
  alone(Role::kSsmOut, hidden_, values);
}

void Needs::kimi_delta(const RecurrentSpec& net) {
  const std::int64_t width = net.value_heads * net.value_dim;
  product(Role::kQuery, Role::kQuery, width, hidden_);
  product(Role::kKey, Role::kQuery, width, hidden_);
  product(Role::kValue, Role::kQuery, width, hidden_);
  product(Role::kSsmFA, Role::kQuery, net.value_dim, hidden_);
  product(Role::kSsmGA, Role::kQuery, net.value_dim, hidden_);
  product(Role::kSsmBeta, Role::kQuery, net.value_heads, hidden_);
  for (const Role role : {Role::kSsmConvQ, Role::kSsmConvK, Role::kSsmConvV})
    convolution(role, width, net.taps);
  alone(Role::kSsmFB, width, net.value_dim);
  alone(Role::kSsmGB, width, net.value_dim);
  vector(Role::kSsmDt, width);
  vector(Role::kSsmA, net.value_heads);
  vector(Role::kSsmNorm, net.value_dim);
  alone(Role::kAttentionOutput, hidden_, width);
}

void Needs::mamba(const RecurrentSpec& net) {
  alone(Role::kSsmIn, 2 * net.inner_size, hidden_);
  convolution(Role::kSsmConv, net.inner_size, net.taps);
  alone(Role::kSsmX, net.step_rank + 2 * net.key_dim, net.inner_size);
  if (net.step_norm == StepNorm::kWeighted) {
    vector(Role::kSsmStepNorm, net.step_rank);
    vector(Role::kSsmBNorm, net.key_dim);
    vector(Role::kSsmCNorm, net.key_dim);
  }
  alone(Role::kSsmStep, net.inner_size, net.step_rank);
  convolution(Role::kSsmA, net.inner_size, net.key_dim);  // transposed likewise
  vector(Role::kSsmD, net.inner_size);
  alone(Role::kSsmOut, hidden_, net.inner_size);
}

void Needs::mamba2(const RecurrentSpec& net) {
  const std::int64_t convolved = net.inner_size + 2 * net.num_groups * net.key_dim;
  alone(Role::kSsmIn, net.inner_size + convolved + net.value_heads, hidden_);
  convolution(Role::kSsmConv, convolved, net.taps);
  vector(Role::kSsmDt, net.value_heads);
  vector(Role::kSsmA, net.value_heads);
  vector(Role::kSsmD, net.value_heads);
  if (net.has_norm) vector(Role::kSsmNorm, net.inner_size);
  alone(Role::kSsmOut, hidden_, net.inner_size);
}

void Needs::mixer(const LayerSpec& layer) {
  switch (layer.mixer) {
    case Mixer::kNone: break;
    case Mixer::kAttention: attention(layer.attention); break;
    case Mixer::kLatent: latent(layer); break;
    case Mixer::kDeltaNet: delta_net(layer.recurrent); break;
    case Mixer::kKimiDelta: kimi_delta(layer.recurrent); break;
    case Mixer::kShortConv:
      alone(Role::kConvIn, 3 * layer.recurrent.inner_size, hidden_);
      convolution(Role::kConv, layer.recurrent.inner_size, layer.recurrent.taps);
      alone(Role::kConvOut, hidden_, layer.recurrent.inner_size);
      break;
    case Mixer::kMamba: mamba(layer.recurrent); break;
    case Mixer::kMamba2: mamba2(layer.recurrent); break;
    case Mixer::kAttentionAndMamba2:
      attention(layer.attention);
      mamba2(layer.recurrent);
      break;
  }
}

void Needs::dense(const FeedForwardSpec& ffn) {
  if (ffn.is_gated && !ffn.fused_gate) product(Role::kGate, Role::kGate, ffn.size, hidden_);
  product(Role::kUp, Role::kGate, ffn.fused_gate ? 2 * ffn.size : ffn.size, hidden_);
  if (ffn.sub_norm) vector(Role::kFfnSubNorm, ffn.size);
  alone(Role::kDown, hidden_, ffn.size);
}

void Needs::with_experts(const FeedForwardSpec& ffn) {
  const std::int64_t width = ffn.latent_size > 0 ? ffn.latent_size : hidden_;
  alone(Role::kRouter, ffn.num_experts, hidden_);
  if (ffn.has_choice_bias) vector(Role::kChoiceBias, ffn.num_experts);
  if (ffn.latent_size > 0) {
    alone(Role::kLatentDown, width, hidden_);
    alone(Role::kLatentUp, hidden_, width);
  }
  if (ffn.fused_experts) {
    experts(Role::kGateUpExperts, Role::kGateExperts, 2 * ffn.expert_size, width, ffn.num_experts);
  } else {
    if (ffn.experts_gated) experts(Role::kGateExperts, Role::kGateExperts, ffn.expert_size, width, ffn.num_experts);
    experts(Role::kUpExperts, Role::kGateExperts, ffn.expert_size, width, ffn.num_experts);
  }
  experts(Role::kDownExperts, Role::kDownExperts, width, ffn.expert_size, ffn.num_experts);
  vector(Role::kDownExpertsScale, ffn.num_experts, true);
  vector(Role::kExpertsBias, hidden_, true);
  if (ffn.shared_size == 0) return;
  if (ffn.experts_gated) product(Role::kGateShared, Role::kGateShared, ffn.shared_size, hidden_);
  product(Role::kUpShared, Role::kGateShared, ffn.shared_size, hidden_);
  alone(Role::kDownShared, hidden_, ffn.shared_size);
  if (ffn.shared_gate) alone(Role::kSharedGate, 1, hidden_);
}

void Needs::streams() {
  const std::int64_t count = spec_.num_streams;
  alone(Role::kStreamRouter, count, hidden_);
  vector(Role::kStreamRouterNorm, hidden_);
  alone(Role::kStreamPrediction, count * count, count);
  alone(Role::kStreamCorrection, count, count);
  vector(Role::kStreamScale, hidden_);
  if (spec_.laurel_rank == 0) return;
  alone(Role::kLaurelLeft, spec_.laurel_rank, hidden_);
  alone(Role::kLaurelRight, hidden_, spec_.laurel_rank);
  vector(Role::kLaurelNorm, hidden_);
}

std::vector<WeightNeed> Needs::of_layer(const LayerSpec& layer) {
  using Kind = FeedForwardSpec::Kind;
  const FeedForwardSpec& ffn = layer.feed_forward;
  vector(layer.mixer_norm, hidden_);
  mixer(layer);
  for (const Role norm : {layer.mixer_output_norm, layer.mixer_sum_norm, layer.mixer_sum_norm_2, layer.ffn_norm})
    vector(norm, hidden_);
  if (ffn.kind == Kind::kDense || ffn.kind == Kind::kBoth) dense(ffn);
  if (ffn.kind == Kind::kExperts || ffn.kind == Kind::kBoth) with_experts(ffn);
  if (ffn.kind == Kind::kBoth) {
    vector(Role::kRouterScale, hidden_);
    for (const Role norm : {Role::kPostFfnNorm1, Role::kPreFfnNorm2, Role::kPostFfnNorm2})
      vector(norm, hidden_);
  }
  vector(layer.ffn_output_norm, hidden_);
  vector(layer.ffn_sum_norm, hidden_);
  if (spec_.per_layer_size > 0) {
    alone(Role::kInputGate, spec_.per_layer_size, hidden_);
    alone(Role::kInputProjection, hidden_, spec_.per_layer_size);
    vector(Role::kInputNorm, hidden_);
  }
  if (layer.output_scale) vector(Role::kLayerScale, 1);
  if (spec_.num_streams > 1) streams();
  return std::move(out_);
}

std::vector<WeightNeed> Needs::of_next_tokens() {
  alone(Role::kNextInput, hidden_, 2 * hidden_);
  vector(Role::kNextTokenNorm, hidden_);
  vector(Role::kNextHiddenNorm, hidden_);
  vector(Role::kNextOutputNorm, hidden_, true);
  return of_layer(*spec_.next_tokens);
}

}  // namespace

const RoleInfo& role_info(WeightRole role) {
  return kRoles.at(static_cast<std::size_t>(role));
}

std::string gguf_name(WeightRole role, std::int64_t layer) {
  const RoleInfo& info = role_info(role);
  if (layer < 0) return fmt::format("{}{}", info.gguf, info.suffix);
  return fmt::format("blk.{}.{}{}", layer, info.gguf, info.suffix);
}

std::vector<WeightNeed> weight_needs(const ModelSpec& spec, std::int64_t layer) {
  if (layer < 0) return Needs(spec).of_model();
  if (layer == spec.config.num_layers && spec.next_tokens) return Needs(spec).of_next_tokens();
  return Needs(spec).of_layer(spec.layers.at(static_cast<std::size_t>(layer)));
}

}  // namespace quire
