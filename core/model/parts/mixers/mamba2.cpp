#include "core/model/parts/mixers/recurrent_mixers.h"

#include "core/model/parts/layer_run.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

namespace {

// Channels of the convolution: x, B and C.
std::int64_t convolved_size(const RecurrentSpec& net) {
  return net.inner_size + 2 * net.num_groups * net.key_dim;
}

}  // namespace

void Mamba2::check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const {
  RecurrentMixer::check(layer, index, check);
  check_matrices(layer.recurrent, check);
}

void Mamba2::list_weights(const LayerSpec& layer, WeightList& list) const {
  const RecurrentSpec& net = layer.recurrent;
  const std::int64_t convolved = convolved_size(net);
  list.alone(Role::kSsmIn, net.inner_size + convolved + net.value_heads, list.hidden_size());
  list.convolution(Role::kSsmConv, convolved, net.taps, true);
  list.offsets(Role::kSsmDt, net.value_heads);
  list.decays(Role::kSsmA, net.value_heads);
  list.vector(Role::kSsmD, net.value_heads);
  if (net.has_norm) list.vector(Role::kSsmNorm, net.inner_size);
  list.alone(Role::kSsmOut, list.hidden_size(), net.inner_size);
}

void Mamba2::fit(const LayerSpec& layer, std::int64_t /*hidden_size*/, Widths& widths) const {
  const RecurrentSpec& net = layer.recurrent;
  widths.fit(kMixed, net.inner_size + convolved_size(net) + net.value_heads);
  widths.fit(kAttended, net.inner_size);
}

const char* Mamba2::lacking(const LayerSpec& layer, const ModelSpec& /*model*/, Backend& backend) const {
  return lacking_matrices(layer.recurrent, backend);
}

StateSize Mamba2::state(const LayerSpec& layer) const {
  const RecurrentSpec& net = layer.recurrent;
  return {.conv = conv_state_floats(convolved_size(net), net.taps),
          .behind_conv = matrix_state_floats(net.value_heads, net.key_dim, net.value_dim)};
}

void Mamba2::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t inner = net.inner_size;
  const std::int64_t group_state = net.num_groups * net.key_dim;
  const std::int64_t convolved = convolved_size(net);
  const MatrixView all = layer.room(kMixed, out.rows, inner + convolved + net.value_heads);
  const MatrixView z = columns(all, 0, inner);
  const MatrixView xbc = columns(all, inner, convolved);
  const MatrixView mixed = layer.room(kAttended, out.rows, inner);
  RecurrentOps& ops = layer.recurrent();
  layer.multiply(Role::kSsmIn, in, all, false);
  convolve(layer, xbc);
  const StateSpaceArgs args{.num_heads = net.value_heads,
                            .head_dim = net.value_dim,
                            .state_size = net.key_dim,
                            .num_groups = net.num_groups,
                            .a = layer.vector(Role::kSsmA),
                            .d = layer.vector(Role::kSsmD),
                            .dt_bias = layer.vector(Role::kSsmDt)};
  ops.state_space(layer.slice.attention, layer.state(true), args, columns(xbc, 0, inner),
                  columns(xbc, inner, group_state), columns(xbc, inner + group_state, group_state),
                  columns(all, inner + convolved, net.value_heads), mixed);
  using Order = GatedNormArgs::Order;
  ops.gated_norm({.order = net.has_norm ? Order::kGateThenNorm : Order::kGateOnly,
                  .group = inner / net.num_groups,
                  .weight = layer.vector(Role::kSsmNorm),
                  .eps = layer.eps()},
                 z, mixed);
  layer.multiply(Role::kSsmOut, mixed, out, accumulate);
}

}  // namespace quire
