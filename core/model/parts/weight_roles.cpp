#include "core/model/parts/weight_roles.h"

#include <fmt/core.h>

#include <array>
#include <span>

#include "core/model/parts/mixers/recurrent_mixer.h"
#include "core/model/parts/parts.h"
#include "core/model/parts/weight_list.h"
#include "kernels/check.h"

namespace quire {

namespace {

using Role = WeightRole;

// Roles outside the parts: the model's, norms around branches, embeddings of layers, residual streams.
constexpr RoleName kModelRoles[] = {
    {Role::kTokenEmbedding, {"token_embd", "embed_tokens"}},
    {Role::kPositions, {"position_embd", ""}},
    {Role::kTokenTypes, {"token_types", ""}},
    {Role::kEmbeddingNorm, {"token_embd_norm", ""}},
    {Role::kOutputNorm, {"output_norm", "norm"}},
    {Role::kLfmOutputNorm, {"token_embd_norm", "embedding_norm"}},
    {Role::kEncoderOutputNorm, {"enc.output_norm", ""}},
    {Role::kHead, {"output", "^lm_head"}},
    {Role::kClassifier, {"cls", ""}},
    {Role::kClassifierNorm, {"cls.norm", ""}},
    {Role::kClassifierOutput, {"cls.output", ""}},
    {Role::kPerLayerEmbedding, {"per_layer_token_embd", "embed_tokens_per_layer"}},
    {Role::kPerLayerProjection, {"per_layer_model_proj", "per_layer_model_projection"}},
    {Role::kPerLayerNorm, {"per_layer_proj_norm", "per_layer_projection_norm"}},
    {Role::kDense2, {"dense_2", ""}},
    {Role::kDense3, {"dense_3", ""}},
    {Role::kStreamIn, {"altup_proj", "altup_projections.#"}},
    {Role::kStreamOut, {"altup_unembd_proj", "altup_unembed_projections.#"}},
    {Role::kAttentionNorm, {"attn_norm", "input_layernorm"}},
    {Role::kAttentionNorm2, {"attn_norm_2", ""}},
    {Role::kPostAttentionNorm, {"post_attention_norm", ""}},
    {Role::kFfnNorm, {"ffn_norm", "post_attention_layernorm"}},
    {Role::kPostFfnNorm, {"post_ffw_norm", ""}},
    {Role::kAttentionOutputNorm, {"attn_output_norm", ""}},
    {Role::kLayerOutputNorm, {"layer_output_norm", ""}},
    {Role::kInputGate, {"inp_gate", "per_layer_input_gate"}},
    {Role::kInputProjection, {"proj", "per_layer_projection"}},
    {Role::kInputNorm, {"post_norm", "post_per_layer_input_norm"}},
    {Role::kLayerScale, {"layer_output_scale", "layer_scalar$"}},
    {Role::kStreamRouter, {"altup_router", "altup.modality_router"}},
    {Role::kStreamRouterNorm, {"altup_router_norm", "altup.router_norm"}},
    {Role::kStreamPrediction, {"altup_predict_coef", "altup.prediction_coefs"}},
    {Role::kStreamCorrection, {"altup_correct_coef", "altup.correction_coefs"}},
    {Role::kStreamScale, {"altup_correct_scale", "altup.correct_output_scale$"}},
    {Role::kLaurelLeft, {"laurel_l", "laurel.linear_left"}},
    {Role::kLaurelRight, {"laurel_r", "laurel.linear_right"}},
    {Role::kLaurelNorm, {"laurel_post_norm", "laurel.post_laurel_norm"}},
    {Role::kNextInput, {"nextn.eh_proj", ""}},
    {Role::kNextTokenNorm, {"nextn.enorm", ""}},
    {Role::kNextHiddenNorm, {"nextn.hnorm", ""}},
    {Role::kNextOutputNorm, {"nextn.shared_head_norm", ""}},
};

using RoleTable = std::array<RoleInfo, kNumWeightRoles>;

// Invariant: each role has one owner.
RoleTable all_roles() {
  RoleTable table{};
  const auto add = [&](std::span<const RoleName> roles) {
    for (const RoleName& row : roles) {
      RoleInfo& info = table.at(static_cast<std::size_t>(row.role));
      QUIRE_CHECK(info.gguf.empty(), "two parts own a role");
      info = row.names;
    }
  };
  add(kModelRoles);
  add(RecurrentMixer::shared_roles());
  for (const Part* part : mixer_parts())
    add(part->roles());
  for (const Part* part : feed_forward_parts())
    add(part->roles());
  for (const RoleInfo& info : table)
    QUIRE_CHECK(!info.gguf.empty(), "no part owns a role");
  return table;
}

void list_model(const ModelSpec& spec, WeightList& list) {
  const std::int64_t hidden = list.hidden_size();
  const ModelConfig& config = spec.config;
  list.rows(Role::kTokenEmbedding, config.vocab_size, hidden);
  if (spec.has_positions) list.rows(Role::kPositions, config.max_context, hidden);
  if (spec.num_token_types > 0) list.vector(Role::kTokenTypes, spec.num_token_types * hidden);
  list.vector(spec.embedding_norm, hidden);
  if (spec.per_layer_size > 0) {
    const std::int64_t width = spec.per_layer_size * config.num_layers;
    list.rows(Role::kPerLayerEmbedding, spec.per_layer_rows, width);
    list.alone(Role::kPerLayerProjection, width, hidden);
    list.vector(Role::kPerLayerNorm, spec.per_layer_size);
  }
  if (spec.num_streams > 1) {
    for (const Role role : {Role::kStreamIn, Role::kStreamOut})
      list.experts(role, role, hidden, hidden, spec.num_streams - 1);
  }
  list.vector(spec.final_norm, hidden);
  if (spec.has_head) list.alone(Role::kHead, config.vocab_size, hidden);
  std::int64_t width = hidden;
  for (std::size_t i = 0; i < spec.dense_sizes.size(); ++i) {
    list.alone(i == 0 ? Role::kDense2 : Role::kDense3, spec.dense_sizes[i], width);
    width = spec.dense_sizes[i];
  }
  if (spec.has_classifier_dense) list.alone(Role::kClassifier, hidden, hidden);
  if (spec.has_classifier_norm) list.vector(Role::kClassifierNorm, hidden);
  if (spec.num_labels > 0) list.alone(Role::kClassifierOutput, spec.num_labels, hidden);
}

void list_streams(const ModelSpec& spec, WeightList& list) {
  const std::int64_t hidden = list.hidden_size();
  const std::int64_t count = spec.num_streams;
  list.alone(Role::kStreamRouter, count, hidden);
  list.vector(Role::kStreamRouterNorm, hidden);
  list.alone(Role::kStreamPrediction, count * count, count);
  list.alone(Role::kStreamCorrection, count, count);
  list.vector(Role::kStreamScale, hidden);
  if (spec.laurel_rank == 0) return;
  list.alone(Role::kLaurelLeft, spec.laurel_rank, hidden);
  list.alone(Role::kLaurelRight, hidden, spec.laurel_rank);
  list.vector(Role::kLaurelNorm, hidden);
}

void list_layer(const ModelSpec& spec, const LayerSpec& layer, WeightList& list) {
  const std::int64_t hidden = list.hidden_size();
  list.vector(layer.mixer_norm, hidden);
  mixer_part(layer).list_weights(layer, list);
  for (const Role norm : {layer.mixer_output_norm, layer.mixer_sum_norm, layer.mixer_sum_norm_2, layer.ffn_norm})
    list.vector(norm, hidden);
  feed_forward_part(layer).list_weights(layer, list);
  list.vector(layer.ffn_output_norm, hidden);
  list.vector(layer.ffn_sum_norm, hidden);
  if (spec.per_layer_size > 0) {
    list.alone(Role::kInputGate, spec.per_layer_size, hidden);
    list.alone(Role::kInputProjection, hidden, spec.per_layer_size);
    list.vector(Role::kInputNorm, hidden);
  }
  if (layer.output_scale) list.vector(Role::kLayerScale, 1);
  if (spec.num_streams > 1) list_streams(spec, list);
}

void list_next_tokens(const ModelSpec& spec, WeightList& list) {
  const std::int64_t hidden = list.hidden_size();
  list.alone(Role::kNextInput, hidden, 2 * hidden);
  list.vector(Role::kNextTokenNorm, hidden);
  list.vector(Role::kNextHiddenNorm, hidden);
  list.vector(Role::kNextOutputNorm, hidden, true);
  list_layer(spec, *spec.next_tokens, list);
}

}  // namespace

const RoleInfo& role_info(WeightRole role) {
  static const RoleTable kTable = all_roles();
  return kTable.at(static_cast<std::size_t>(role));
}

std::string gguf_name(WeightRole role, std::int64_t layer) {
  const RoleInfo& info = role_info(role);
  if (layer < 0) return fmt::format("{}{}", info.gguf, info.suffix);
  return fmt::format("blk.{}.{}{}", layer, info.gguf, info.suffix);
}

std::vector<WeightNeed> weight_needs(const ModelSpec& spec, std::int64_t layer) {
  WeightList list(spec.config.hidden_size);
  if (layer < 0) {
    list_model(spec, list);
  } else if (layer == spec.config.num_layers && spec.next_tokens) {
    list_next_tokens(spec, list);
  } else {
    list_layer(spec, spec.layers.at(static_cast<std::size_t>(layer)), list);
  }
  return list.take();
}

}  // namespace quire
