#include "core/model/parts/mixers/recurrent_mixers.h"

#include "core/model/parts/layer_run.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

std::span<const RoleName> Mamba::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kSsmX, {"ssm_x", ""}},
      {Role::kSsmStep, {"ssm_dt", ""}},
      {Role::kSsmStepNorm, {"ssm_dt_norm", ""}},
      {Role::kSsmBNorm, {"ssm_b_norm", ""}},
      {Role::kSsmCNorm, {"ssm_c_norm", ""}},
  };
  return kRoles;
}

void Mamba::check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const {
  const RecurrentSpec& net = layer.recurrent;
  RecurrentMixer::check(layer, index, check);
  check.in_range("the state-space layers' width", net.inner_size, 1, 1 << 20);
  check.in_range("the state size", net.key_dim, 1, 1 << 12);
  check.in_range("the rank of the time step", net.step_rank, 1, 1 << 16);
}

void Mamba::list_weights(const LayerSpec& layer, WeightList& list) const {
  const RecurrentSpec& net = layer.recurrent;
  const std::int64_t hidden = list.hidden_size();
  list.alone(Role::kSsmIn, 2 * net.inner_size, hidden);
  list.convolution(Role::kSsmConv, net.inner_size, net.taps, true);
  list.alone(Role::kSsmX, net.step_rank + 2 * net.key_dim, net.inner_size);
  if (net.step_norm == StepNorm::kWeighted) {
    list.vector(Role::kSsmStepNorm, net.step_rank);
    list.vector(Role::kSsmBNorm, net.key_dim);
    list.vector(Role::kSsmCNorm, net.key_dim);
  }
  list.alone(Role::kSsmStep, net.inner_size, net.step_rank);
  list.decays(Role::kSsmA, net.inner_size * net.key_dim, net.key_dim);  // transposed like a convolution
  list.vector(Role::kSsmD, net.inner_size);
  list.alone(Role::kSsmOut, hidden, net.inner_size);
}

void Mamba::fit(const LayerSpec& layer, std::int64_t /*hidden_size*/, Widths& widths) const {
  const RecurrentSpec& net = layer.recurrent;
  widths.fit(kMixed, 2 * net.inner_size);
  widths.fit(kQkv, net.step_rank + 2 * net.key_dim);
  widths.fit(kAttended, 2 * net.inner_size);
}

StateSize Mamba::state(const LayerSpec& layer) const {
  const RecurrentSpec& net = layer.recurrent;
  return {.conv = conv_state_floats(net.inner_size, net.taps),
          .behind_conv = matrix_state_floats(1, net.key_dim, net.inner_size)};
}

// The step and the projections in and out of the state follow from the input.
void Mamba::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t inner = net.inner_size;
  const MatrixView all = layer.room(kMixed, out.rows, 2 * inner);
  const MatrixView x = columns(all, 0, inner);
  const MatrixView z = columns(all, inner, inner);
  const MatrixView made = layer.room(kQkv, out.rows, net.step_rank + 2 * net.key_dim);
  const MatrixView low = columns(made, 0, net.step_rank);
  const MatrixView b = columns(made, net.step_rank, net.key_dim);
  const MatrixView c = columns(made, net.step_rank + net.key_dim, net.key_dim);
  const MatrixView wide = layer.room(kAttended, out.rows, 2 * inner);
  const MatrixView step = columns(wide, 0, inner);
  const MatrixView mixed = columns(wide, inner, inner);
  RecurrentOps& ops = layer.recurrent();
  layer.multiply(Role::kSsmIn, in, all, false);
  convolve(layer, x);
  layer.multiply(Role::kSsmX, x, made, false);
  if (net.step_norm != StepNorm::kNone) {
    const bool has_weights = net.step_norm == StepNorm::kWeighted;
    const auto norm_part = [&](MatrixView part, Role role) {
      const float* weight = has_weights ? layer.vector(role) : layer.work.ones->data();
      layer.backend().rms_norm(part, weight, static_cast<float>(net.step_eps), part);
    };
    norm_part(low, Role::kSsmStepNorm);
    norm_part(b, Role::kSsmBNorm);
    norm_part(c, Role::kSsmCNorm);
  }
  layer.multiply(Role::kSsmStep, low, step, false);
  const SelectiveScanArgs args{.state_size = net.key_dim,
                               .a = layer.vector(Role::kSsmA),
                               .d = layer.vector(Role::kSsmD),
                               .dt_bias = layer.work.zeros->data()};
  ops.selective_scan(layer.slice.attention, layer.state(true), args, x, b, c, step, mixed);
  ops.gated_norm({.order = GatedNormArgs::Order::kGateOnly, .group = inner, .eps = layer.eps()}, z, mixed);
  layer.multiply(Role::kSsmOut, mixed, out, accumulate);
}

}  // namespace quire
