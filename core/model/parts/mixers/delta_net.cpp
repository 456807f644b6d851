#include "core/model/parts/mixers/recurrent_mixers.h"

#include "core/model/parts/layer_run.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

std::span<const RoleName> DeltaNet::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kSsmAlpha, {"ssm_alpha", "linear_attn.in_proj_a"}},
      {Role::kSsmBa, {"ssm_ba", "linear_attn.in_proj_ba"}},
  };
  return kRoles;
}

void DeltaNet::check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const {
  const RecurrentSpec& net = layer.recurrent;
  RecurrentMixer::check(layer, index, check);
  check_matrices(net, check);
  check.in_range("the number of key heads", net.key_heads, 1, net.value_heads);
  check.require(net.value_heads % net.key_heads == 0, "the value heads cannot share the key heads");
}

void DeltaNet::list_weights(const LayerSpec& layer, WeightList& list) const {
  const RecurrentSpec& net = layer.recurrent;
  const std::int64_t hidden = list.hidden_size();
  const std::int64_t keys = net.key_heads * net.key_dim;
  const std::int64_t values = net.value_heads * net.value_dim;
  list.product(Role::kQkv, Role::kQuery, 2 * keys + values, hidden);
  list.product(Role::kAttentionGate, Role::kQuery, values, hidden);
  if (net.fused_ba) {
    list.product(Role::kSsmBa, Role::kQuery, 2 * net.value_heads, hidden, net.value_heads / net.key_heads);
  } else {
    list.product(Role::kSsmBeta, Role::kQuery, net.value_heads, hidden);
    list.product(Role::kSsmAlpha, Role::kQuery, net.value_heads, hidden);
  }
  list.convolution(Role::kSsmConv, 2 * keys + values, net.taps);
  list.offsets(Role::kSsmDt, net.value_heads);
  list.decays(Role::kSsmA, net.value_heads);
  list.vector(Role::kSsmNorm, net.value_dim);
  list.alone(Role::kSsmOut, hidden, values);
}

void DeltaNet::fit(const LayerSpec& layer, std::int64_t /*hidden_size*/, Widths& widths) const {
  const RecurrentSpec& net = layer.recurrent;
  const std::int64_t values = net.value_heads * net.value_dim;
  widths.fit(kMixed, 2 * net.key_heads * net.key_dim + 2 * values + 2 * net.value_heads);
  widths.fit(kAttended, values);
}

const char* DeltaNet::lacking(const LayerSpec& layer, const ModelSpec& /*model*/, Backend& backend) const {
  return lacking_matrices(layer.recurrent, backend);
}

StateSize DeltaNet::state(const LayerSpec& layer) const {
  const RecurrentSpec& net = layer.recurrent;
  return {.conv = conv_state_floats(2 * net.key_heads * net.key_dim + net.value_heads * net.value_dim, net.taps),
          .behind_conv = matrix_state_floats(net.value_heads, net.key_dim, net.value_dim)};
}

void DeltaNet::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t keys = net.key_heads * net.key_dim;
  const std::int64_t values = net.value_heads * net.value_dim;
  const MatrixView all = layer.room(kMixed, out.rows, 2 * keys + 2 * values + 2 * net.value_heads);
  const MatrixView qkv = columns(all, 0, 2 * keys + values);
  const MatrixView z = columns(all, qkv.cols, values);
  const MatrixView beta = columns(all, qkv.cols + values, net.value_heads);
  const MatrixView alpha = columns(all, qkv.cols + values + net.value_heads, net.value_heads);
  const MatrixView mixed = layer.room(kAttended, out.rows, values);
  RecurrentOps& ops = layer.recurrent();
  layer.multiply(Role::kQuery, in, all, false);
  ops.short_conv(layer.slice.attention, layer.state(false),
                 {.taps = net.taps, .weights = layer.vector(Role::kSsmConv), .silu = true}, qkv, {}, {}, qkv);
  const DeltaArgs args{.key_heads = net.key_heads,
                       .value_heads = net.value_heads,
                       .key_dim = net.key_dim,
                       .value_dim = net.value_dim,
                       .grouped = net.grouped_heads,
                       .eps = static_cast<float>(layer.model().delta_eps),
                       .a = layer.vector(Role::kSsmA),
                       .dt_bias = layer.vector(Role::kSsmDt)};
  ops.delta_rule(layer.slice.attention, layer.state(true), args, columns(qkv, 0, keys), columns(qkv, keys, keys),
                 columns(qkv, 2 * keys, values), alpha, beta, mixed);
  ops.gated_norm(
      {.group = net.value_dim, .shared_weight = true, .weight = layer.vector(Role::kSsmNorm), .eps = layer.eps()}, z,
      mixed);
  layer.multiply(Role::kSsmOut, mixed, out, accumulate);
}

}  // namespace quire
