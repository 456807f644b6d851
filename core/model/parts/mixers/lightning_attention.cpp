#include "core/model/parts/mixers/recurrent_mixers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/model/parts/layer_run.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

namespace {

std::int64_t width_of(const RecurrentSpec& net) {
  return net.value_heads * net.value_dim;
}

}  // namespace

void LightningAttention::list_weights(const LayerSpec& layer, WeightList& list) const {
  const RecurrentSpec& net = layer.recurrent;
  const std::int64_t width = width_of(net);
  list.product(Role::kQkv, Role::kQuery, 3 * width, list.hidden_size());
  list.product(Role::kAttentionGate, Role::kQuery, width, list.hidden_size());
  if (layer.attention.qk_norm != QkNorm::kNone) {
    list.vector(Role::kQueryNorm, net.key_dim);
    list.vector(Role::kKeyNorm, net.key_dim);
  }
  // The state space's softplus makes these steps one.
  const auto step = static_cast<float>(std::log(std::numbers::e - 1.0));
  list.constants(Role::kSsmDt, std::vector<float>(net.decays.size(), step));
  list.constants(Role::kSsmA, net.decays);
  list.vector(Role::kSsmNorm, width);
  list.alone(Role::kAttentionOutput, list.hidden_size(), width);
}

void LightningAttention::check(const LayerSpec& layer, std::int64_t /*index*/, const SpecChecker& check) const {
  const RecurrentSpec& net = layer.recurrent;
  check_matrices(net, check);
  check.require(net.key_dim == net.value_dim && net.key_heads == net.value_heads,
                "keys and values of linear attention have different sizes");
  check.require(std::ssize(net.decays) == net.value_heads &&
                    std::ranges::all_of(net.decays, [](float decay) { return decay <= 0.0F; }),
                "the heads of linear attention have no decays");
  check.in_range("the number of norm groups", net.num_groups, 1, width_of(net));
  check.require(width_of(net) % net.num_groups == 0, "the heads do not divide into the groups of their norm");
}

void LightningAttention::fit(const LayerSpec& layer, std::int64_t /*hidden_size*/, Widths& widths) const {
  widths.fit(kMixed, 4 * width_of(layer.recurrent));
  widths.fit(kAttended, width_of(layer.recurrent));
}

const char* LightningAttention::lacking(const LayerSpec& layer, const ModelSpec& /*model*/, Backend& backend) const {
  const char* const what = lacking_matrices(layer.recurrent, backend);
  return what != nullptr ? what : first_lacking({{true, Ability::kGraph, "linear attention"}}, backend);
}

std::int64_t LightningAttention::rotated_dim(const LayerSpec& layer) const {
  return layer.attention.rope >= 0 ? layer.recurrent.key_dim : 0;
}

StateSize LightningAttention::state(const LayerSpec& layer) const {
  const RecurrentSpec& net = layer.recurrent;
  return {.behind_conv = matrix_state_floats(net.value_heads, net.key_dim, net.value_dim)};
}

// A state space whose steps are all one: S <- exp(a) S + k (x) v; out = S q / sqrt(key_dim).
void LightningAttention::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  const RecurrentSpec& net = layer.spec.recurrent;
  const AttentionSpec& attention = layer.spec.attention;
  const std::int64_t width = width_of(net);
  const MatrixView all = layer.room(kMixed, out.rows, 4 * width);
  const MatrixView q = columns(all, 0, width);
  const MatrixView k = columns(all, width, width);
  const MatrixView mixed = layer.room(kAttended, out.rows, width);
  layer.multiply(Role::kQuery, in, all, false);
  if (net.silu_inputs) {
    const MatrixView qkv = columns(all, 0, 3 * width);
    layer.graph().activate({.kind = Nonlinearity::kSilu}, qkv, {}, qkv);
  }
  if (attention.qk_norm != QkNorm::kNone) {
    layer.backend().head_rms_norm(q, net.key_heads, net.key_dim, layer.vector(Role::kQueryNorm), layer.eps());
    layer.backend().head_rms_norm(k, net.key_heads, net.key_dim, layer.vector(Role::kKeyNorm), layer.eps());
  }
  if (attention.rope >= 0) layer.rotate(columns(all, 0, 2 * width), 2 * net.key_heads, net.key_dim);
  layer.graph().scale(q, 1.0F / std::sqrt(static_cast<float>(net.key_dim)));
  const StateSpaceArgs args{.num_heads = net.value_heads,
                            .head_dim = net.value_dim,
                            .state_size = net.key_dim,
                            .num_groups = net.key_heads,
                            .a = layer.vector(Role::kSsmA),
                            .d = layer.work.zeros->data(),
                            .dt_bias = layer.vector(Role::kSsmDt)};
  const MatrixView no_step{layer.work.zeros->data(), out.rows, net.value_heads, 0};
  layer.recurrent().state_space(layer.slice.attention, layer.state(true), args, columns(all, 2 * width, width), k, q,
                                no_step, mixed);
  layer.recurrent().gated_norm({.order = GatedNormArgs::Order::kNormThenGate,
                                .sigmoid = true,
                                .group = width / net.num_groups,
                                .weight = layer.vector(Role::kSsmNorm),
                                .eps = layer.eps()},
                               columns(all, 3 * width, width), mixed);
  layer.multiply(Role::kAttentionOutput, mixed, out, accumulate);
}

}  // namespace quire
