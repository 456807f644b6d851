#include "core/model/parts/mixers/recurrent_mixers.h"

#include "core/model/parts/layer_run.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

std::span<const RoleName> KimiDelta::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kSsmConvQ, {"ssm_conv1d_q", ""}}, {Role::kSsmConvK, {"ssm_conv1d_k", ""}},
      {Role::kSsmConvV, {"ssm_conv1d_v", ""}}, {Role::kSsmFA, {"ssm_f_a", ""}},
      {Role::kSsmFB, {"ssm_f_b", ""}},         {Role::kSsmGA, {"ssm_g_a", ""}},
      {Role::kSsmGB, {"ssm_g_b", ""}},
  };
  return kRoles;
}

void KimiDelta::check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const {
  RecurrentMixer::check(layer, index, check);
  check_matrices(layer.recurrent, check);
}

void KimiDelta::list_weights(const LayerSpec& layer, WeightList& list) const {
  const RecurrentSpec& net = layer.recurrent;
  const std::int64_t hidden = list.hidden_size();
  const std::int64_t width = net.value_heads * net.value_dim;
  list.product(Role::kQuery, Role::kQuery, width, hidden);
  list.product(Role::kKey, Role::kQuery, width, hidden);
  list.product(Role::kValue, Role::kQuery, width, hidden).is_sensitive = true;
  list.product(Role::kSsmFA, Role::kQuery, net.value_dim, hidden);
  list.product(Role::kSsmGA, Role::kQuery, net.value_dim, hidden);
  list.product(Role::kSsmBeta, Role::kQuery, net.value_heads, hidden);
  for (const Role role : {Role::kSsmConvQ, Role::kSsmConvK, Role::kSsmConvV})
    list.convolution(role, width, net.taps);
  list.alone(Role::kSsmFB, width, net.value_dim);
  list.alone(Role::kSsmGB, width, net.value_dim);
  list.offsets(Role::kSsmDt, width);
  list.decays(Role::kSsmA, net.value_heads);
  list.vector(Role::kSsmNorm, net.value_dim);
  list.alone(Role::kAttentionOutput, hidden, width);
}

void KimiDelta::fit(const LayerSpec& layer, std::int64_t /*hidden_size*/, Widths& widths) const {
  const RecurrentSpec& net = layer.recurrent;
  const std::int64_t width = net.value_heads * net.value_dim;
  widths.fit(kMixed, 3 * width + 2 * net.value_dim + net.value_heads);
  widths.fit(kAttended, 3 * width);
}

const char* KimiDelta::lacking(const LayerSpec& layer, const ModelSpec& /*model*/, Backend& backend) const {
  return lacking_matrices(layer.recurrent, backend);
}

StateSize KimiDelta::state(const LayerSpec& layer) const {
  const RecurrentSpec& net = layer.recurrent;
  return {.conv = 3 * conv_state_floats(net.value_heads * net.value_dim, net.taps),
          .behind_conv = matrix_state_floats(net.value_heads, net.key_dim, net.value_dim)};
}

void KimiDelta::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t width = net.value_heads * net.value_dim;
  const std::int64_t low = net.value_dim;
  const MatrixView all = layer.room(kMixed, out.rows, 3 * width + 2 * low + net.value_heads);
  const MatrixView qkv = columns(all, 0, 3 * width);
  const MatrixView wide = layer.room(kAttended, out.rows, 3 * width);
  const MatrixView decay = columns(wide, 0, width);
  const MatrixView gate = columns(wide, width, width);
  const MatrixView mixed = columns(wide, 2 * width, width);
  RecurrentOps& ops = layer.recurrent();
  layer.multiply(Role::kQuery, in, all, false);
  layer.multiply(Role::kSsmFB, columns(all, 3 * width, low), decay, false);
  layer.multiply(Role::kSsmGB, columns(all, 3 * width + low, low), gate, false);
  StatePart conv = layer.state(false);
  std::int64_t part = 0;
  for (const Role role : {Role::kSsmConvQ, Role::kSsmConvK, Role::kSsmConvV}) {
    const MatrixView x = columns(qkv, part * width, width);
    ops.short_conv(layer.slice.attention, conv, {.taps = net.taps, .weights = layer.vector(role), .silu = true}, x, {},
                   {}, x);
    conv.offset += conv_state_floats(width, net.taps);
    ++part;
  }
  const DeltaArgs args{.key_heads = net.key_heads,
                       .value_heads = net.value_heads,
                       .key_dim = net.key_dim,
                       .value_dim = net.value_dim,
                       .grouped = true,
                       .per_channel = true,
                       .eps = static_cast<float>(layer.model().delta_eps),
                       .a = layer.vector(Role::kSsmA),
                       .dt_bias = layer.vector(Role::kSsmDt)};
  ops.delta_rule(layer.slice.attention, layer.state(true), args, columns(qkv, 0, width), columns(qkv, width, width),
                 columns(qkv, 2 * width, width), decay, columns(all, 3 * width + 2 * low, net.value_heads), mixed);
  ops.gated_norm({.sigmoid = true,
                  .group = net.value_dim,
                  .shared_weight = true,
                  .weight = layer.vector(Role::kSsmNorm),
                  .eps = layer.eps()},
                 gate, mixed);
  layer.multiply(Role::kAttentionOutput, mixed, out, accumulate);
}

}  // namespace quire
