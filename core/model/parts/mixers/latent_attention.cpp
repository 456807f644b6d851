#include "core/model/parts/mixers/latent_attention.h"

#include "core/model/parts/layer_run.h"
#include "core/model/parts/mixers/attention.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

std::span<const RoleName> LatentAttention::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kQueryA, {"attn_q_a", "self_attn.q_a_proj"}},
      {Role::kQueryANorm, {"attn_q_a_norm", "self_attn.q_a_layernorm"}},
      {Role::kQueryB, {"attn_q_b", "self_attn.q_b_proj"}},
      {Role::kKvA, {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"}},
      {Role::kKvANorm, {"attn_kv_a_norm", "self_attn.kv_a_layernorm"}},
      {Role::kKeyB, {"attn_k_b", ""}},
      {Role::kValueB, {"attn_v_b", ""}},
      {Role::kKvB, {"attn_kv_b", "self_attn.kv_b_proj"}},
  };
  return kRoles;
}

void LatentAttention::list_weights(const LayerSpec& layer, WeightList& list) const {
  const LatentSpec& latent = layer.latent;
  const std::int64_t hidden = list.hidden_size();
  const std::int64_t heads = layer.attention.num_heads;
  const std::int64_t query = heads * (latent.nope_dim + latent.rope_dim);
  if (latent.query_rank > 0) {
    list.alone(Role::kQueryA, latent.query_rank, hidden);
    list.vector(Role::kQueryANorm, latent.query_rank);
    list.alone(Role::kQueryB, query, latent.query_rank);
  } else {
    list.alone(Role::kQuery, query, hidden);
  }
  list.alone(Role::kKvA, latent.kv_rank + latent.rope_dim, hidden);
  list.vector(Role::kKvANorm, latent.kv_rank);
  if (latent.merged_kv) {
    WeightNeed& both = list.experts(Role::kKvB, Role::kKeyB, latent.nope_dim + latent.value_dim, latent.kv_rank, heads);
    both.form = WeightForm::kPairs;
    both.second_product = Role::kValueB;
    both.first_rows = latent.nope_dim;
  } else {
    list.experts(Role::kKeyB, Role::kKeyB, latent.kv_rank, latent.nope_dim, heads);
    list.experts(Role::kValueB, Role::kValueB, latent.value_dim, latent.kv_rank, heads);
  }
  list.alone(Role::kAttentionOutput, hidden, heads * latent.value_dim);
}

void LatentAttention::check(const LayerSpec& layer, std::int64_t /*index*/, const SpecChecker& check) const {
  const LatentSpec& latent = layer.latent;
  check.in_range("the number of heads", layer.attention.num_heads, 1, 1 << 14);
  check.in_range("the query rank", latent.query_rank, 0, 1 << 20);
  check.in_range("the latent rank", latent.kv_rank, 1, 1 << 16);
  check.in_range("the number of unrotated dimensions", latent.nope_dim, 1, 1 << 12);
  check.in_range("the number of rotated dimensions", latent.rope_dim, 2, 1 << 12);
  check.in_range("the value length", latent.value_dim, 1, 1 << 12);
}

void LatentAttention::fit(const LayerSpec& layer, std::int64_t /*hidden_size*/, Widths& widths) const {
  const LatentSpec& latent = layer.latent;
  const std::int64_t heads = layer.attention.num_heads;
  const std::int64_t row_dim = cached_heads(layer).key_dim;
  widths.fit(kQkv, latent.query_rank + row_dim);
  widths.fit(kQuery, heads * (latent.nope_dim + latent.rope_dim + row_dim));
  widths.fit(kAttended, heads * (latent.kv_rank + latent.value_dim));
}

void LatentAttention::bound(const LayerSpec& layer, StepBounds& step) const {
  step.partial_floats = std::max(step.partial_floats, layer.attention.num_heads * (cached_heads(layer).key_dim + 2));
}

const char* LatentAttention::lacking(const LayerSpec& /*layer*/, const ModelSpec& /*model*/, Backend& backend) const {
  return first_lacking(
      {{true, Ability::kHeadLinear, "latent attention"}, {true, Ability::kMaskedAttention, "latent attention"}},
      backend);
}

std::int64_t LatentAttention::rotated_dim(const LayerSpec& layer) const {
  return layer.attention.rope >= 0 ? layer.latent.rope_dim : 0;
}

KvGroupSpec LatentAttention::kept(const LayerSpec& layer) const {
  return {.kind = KvGroupKind::kLatent,
          .num_layers = 1,
          .num_kv_heads = 1,
          .head_dim = layer.latent.kv_rank + layer.latent.rope_dim,
          .value_dim = 0};
}

KvLayerShape LatentAttention::cached_heads(const LayerSpec& layer) const {
  return {1, padded(layer.latent.kv_rank + layer.latent.rope_dim), 0};
}

// Queries are compared with the latent rows themselves: k_b is applied to the query instead of the keys, v_b to the sum
// of rows.
void LatentAttention::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  const LatentSpec& latent = layer.spec.latent;
  const AttentionSpec& attention = layer.spec.attention;
  const std::int64_t heads = attention.num_heads;
  const Projected from = project(layer, in, out.rows);
  rotate(layer, from);
  if (attention.temperature != 0.0) Attention::scale_by_temperature(layer, from.absorbed);
  KvStorage& kv = *layer.slice.kv;
  const std::int64_t place = layer.kv_layer(layer.index);
  layer.backend().store_kv(kv, place, layer.slice.attention, from.kv, {});
  const MatrixView attended = layer.room(kAttended, out.rows, heads * (latent.kv_rank + latent.value_dim));
  const MatrixView summed = columns(attended, 0, heads * latent.kv_rank);
  const MatrixView values = columns(attended, summed.cols, heads * latent.value_dim);
  const AttentionOptions options{
      .num_heads = heads, .scale = static_cast<float>(attention.scale), .value_in_key = true};
  layer.graph().attention(kv, place, layer.slice.attention, from.absorbed, options, summed);
  layer.graph().head_linear(layer.weights.experts_of(Role::kValueB), summed, values);
  layer.multiply(Role::kAttentionOutput, values, out, accumulate);
}

LatentAttention::Projected LatentAttention::project(const LayerRun& layer, const ProductInput& in,
                                                    std::int64_t rows) const {
  const LatentSpec& latent = layer.spec.latent;
  const std::int64_t heads = layer.spec.attention.num_heads;
  const std::int64_t head_dim = latent.nope_dim + latent.rope_dim;
  const std::int64_t used = latent.kv_rank + latent.rope_dim;
  const std::int64_t row_dim = cached_heads(layer.spec).key_dim;
  const MatrixView both = layer.room(kQuery, rows, heads * (head_dim + row_dim));
  const MatrixView q = columns(both, 0, heads * head_dim);
  const MatrixView absorbed = columns(both, heads * head_dim, heads * row_dim);
  const MatrixView compressed = layer.room(kQkv, rows, latent.query_rank + row_dim);
  const MatrixView kv = columns(compressed, latent.query_rank, row_dim);
  const MatrixView kv_latent = columns(kv, 0, latent.kv_rank);
  if (latent.query_rank > 0) {
    const MatrixView low = columns(compressed, 0, latent.query_rank);
    layer.multiply(Role::kQueryA, in, low, false);
    layer.multiply(Role::kQueryB, normed(low, layer.vector(Role::kQueryANorm), layer.eps()), q, false);
  } else {
    layer.multiply(Role::kQuery, in, q, false);
  }
  layer.multiply(Role::kKvA, in, columns(kv, 0, used), false);
  layer.backend().rms_norm(kv_latent, layer.vector(Role::kKvANorm), layer.eps(), kv_latent);
  GraphOps& graph = layer.graph();
  graph.head_linear(layer.weights.experts_of(Role::kKeyB), q, absorbed);
  const MatrixView zeros{layer.work.zeros->data(), rows, row_dim - used, 0};
  for (std::int64_t head = 0; head < heads; ++head) {
    graph.copy(columns(q, head * head_dim + latent.nope_dim, latent.rope_dim),
               columns(absorbed, head * row_dim + latent.kv_rank, latent.rope_dim));
    if (zeros.cols > 0) graph.copy(zeros, columns(absorbed, head * row_dim + used, zeros.cols));
  }
  if (zeros.cols > 0) graph.copy(zeros, columns(kv, used, zeros.cols));
  return {.absorbed = absorbed, .kv = kv};
}

void LatentAttention::rotate(const LayerRun& layer, const Projected& projected) {
  const LatentSpec& latent = layer.spec.latent;
  if (layer.spec.attention.rope < 0) return;
  const MatrixView q = projected.absorbed;
  const MatrixView kv = projected.kv;
  layer.rotate(columns(q, latent.kv_rank, q.cols - latent.kv_rank), layer.spec.attention.num_heads, kv.cols);
  layer.rotate(columns(kv, latent.kv_rank, latent.rope_dim), 1, latent.rope_dim);
}

}  // namespace quire
