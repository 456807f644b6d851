// Mixers that keep a state of fixed size: delta nets, short convolutions, Mamba, Mamba-2.
#include "core/model/layers/transformer.h"
#include "core/model/layers/views.h"
#include "kernels/check.h"

namespace quire {

using Role = WeightRole;

StatePart Transformer::state_of(const Layer& layer, bool behind_conv) const {
  const StatePlace& place = state_places_[static_cast<std::size_t>(layer.index)];
  QUIRE_CHECK(layer.slice.states != nullptr, "a recurrent layer without states");
  return {layer.slice.states, place.offset + (behind_conv ? place.conv_floats : 0)};
}

void Transformer::run_delta_net(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate) {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t keys = net.key_heads * net.key_dim;
  const std::int64_t values = net.value_heads * net.value_dim;
  const MatrixView all = room(kMixed, out.rows, 2 * keys + 2 * values + 2 * net.value_heads);
  const MatrixView qkv = columns(all, 0, 2 * keys + values);
  const MatrixView z = columns(all, qkv.cols, values);
  const MatrixView beta = columns(all, qkv.cols + values, net.value_heads);
  const MatrixView alpha = columns(all, qkv.cols + values + net.value_heads, net.value_heads);
  const MatrixView mixed = room(kAttended, out.rows, values);
  const PackedLayer& weights = layer.weights;
  multiply(layer, Role::kQuery, in, all, false);
  recurrent().short_conv(layer.slice.attention, state_of(layer, false),
                         {.taps = net.taps, .weights = weights.vector(Role::kSsmConv), .silu = true}, qkv, {}, {}, qkv);
  const DeltaArgs args{.key_heads = net.key_heads,
                       .value_heads = net.value_heads,
                       .key_dim = net.key_dim,
                       .value_dim = net.value_dim,
                       .grouped = net.grouped_heads,
                       .eps = static_cast<float>(spec_.delta_eps),
                       .a = weights.vector(Role::kSsmA),
                       .dt_bias = weights.vector(Role::kSsmDt)};
  recurrent().delta_rule(layer.slice.attention, state_of(layer, true), args, columns(qkv, 0, keys),
                         columns(qkv, keys, keys), columns(qkv, 2 * keys, values), alpha, beta, mixed);
  recurrent().gated_norm(
      {.group = net.value_dim, .shared_weight = true, .weight = weights.vector(Role::kSsmNorm), .eps = eps_}, z, mixed);
  multiply(layer, Role::kSsmOut, mixed, out, accumulate);
}

void Transformer::run_kimi_delta(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate) {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t width = net.value_heads * net.value_dim;
  const std::int64_t low = net.value_dim;
  const PackedLayer& weights = layer.weights;
  const MatrixView all = room(kMixed, out.rows, 3 * width + 2 * low + net.value_heads);
  const MatrixView qkv = columns(all, 0, 3 * width);
  const MatrixView wide = room(kAttended, out.rows, 3 * width);
  const MatrixView decay = columns(wide, 0, width);
  const MatrixView gate = columns(wide, width, width);
  const MatrixView mixed = columns(wide, 2 * width, width);
  multiply(layer, Role::kQuery, in, all, false);
  multiply(layer, Role::kSsmFB, columns(all, 3 * width, low), decay, false);
  multiply(layer, Role::kSsmGB, columns(all, 3 * width + low, low), gate, false);
  StatePart conv = state_of(layer, false);
  std::int64_t part = 0;
  for (const Role role : {Role::kSsmConvQ, Role::kSsmConvK, Role::kSsmConvV}) {
    const MatrixView x = columns(qkv, part * width, width);
    recurrent().short_conv(layer.slice.attention, conv,
                           {.taps = net.taps, .weights = weights.vector(role), .silu = true}, x, {}, {}, x);
    conv.offset += conv_state_floats(width, net.taps);
    ++part;
  }
  const DeltaArgs args{.key_heads = net.key_heads,
                       .value_heads = net.value_heads,
                       .key_dim = net.key_dim,
                       .value_dim = net.value_dim,
                       .grouped = true,
                       .per_channel = true,
                       .eps = static_cast<float>(spec_.delta_eps),
                       .a = weights.vector(Role::kSsmA),
                       .dt_bias = weights.vector(Role::kSsmDt)};
  recurrent().delta_rule(layer.slice.attention, state_of(layer, true), args, columns(qkv, 0, width),
                         columns(qkv, width, width), columns(qkv, 2 * width, width), decay,
                         columns(all, 3 * width + 2 * low, net.value_heads), mixed);
  recurrent().gated_norm({.sigmoid = true,
                          .group = net.value_dim,
                          .shared_weight = true,
                          .weight = weights.vector(Role::kSsmNorm),
                          .eps = eps_},
                         gate, mixed);
  multiply(layer, Role::kAttentionOutput, mixed, out, accumulate);
}

// in_proj gives b, c and x: out_proj(c * conv(b * x)).
void Transformer::run_short_conv(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate) {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t width = net.inner_size;
  const PackedLayer& weights = layer.weights;
  const MatrixView all = room(kMixed, out.rows, 3 * width);
  const MatrixView x = columns(all, 2 * width, width);
  multiply(layer, Role::kConvIn, in, all, false);
  recurrent().short_conv(layer.slice.attention, state_of(layer, false),
                         {.taps = net.taps, .weights = weights.vector(Role::kConv)}, x, columns(all, 0, width),
                         columns(all, width, width), x);
  multiply(layer, Role::kConvOut, x, out, accumulate);
}

// The first Mamba (arXiv 2312.00752): the step and the projections in and out of the state follow from the input.
void Transformer::run_mamba(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate) {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t inner = net.inner_size;
  const PackedLayer& weights = layer.weights;
  const MatrixView all = room(kMixed, out.rows, 2 * inner);
  const MatrixView x = columns(all, 0, inner);
  const MatrixView z = columns(all, inner, inner);
  const MatrixView made = room(kQkv, out.rows, net.step_rank + 2 * net.key_dim);
  const MatrixView low = columns(made, 0, net.step_rank);
  const MatrixView b = columns(made, net.step_rank, net.key_dim);
  const MatrixView c = columns(made, net.step_rank + net.key_dim, net.key_dim);
  const MatrixView wide = room(kAttended, out.rows, 2 * inner);
  const MatrixView step = columns(wide, 0, inner);
  const MatrixView mixed = columns(wide, inner, inner);
  multiply(layer, Role::kSsmIn, in, all, false);
  recurrent().short_conv(
      layer.slice.attention, state_of(layer, false),
      {.taps = net.taps, .weights = weights.vector(Role::kSsmConv), .bias = weights.bias(Role::kSsmConv), .silu = true},
      x, {}, {}, x);
  multiply(layer, Role::kSsmX, x, made, false);
  if (net.step_norm != StepNorm::kNone) {
    const bool has_weights = net.step_norm == StepNorm::kWeighted;
    const auto norm_part = [&](MatrixView part, Role role) {
      backend_.rms_norm(part, has_weights ? weights.vector(role) : ones_->data(), static_cast<float>(net.step_eps),
                        part);
    };
    norm_part(low, Role::kSsmStepNorm);
    norm_part(b, Role::kSsmBNorm);
    norm_part(c, Role::kSsmCNorm);
  }
  multiply(layer, Role::kSsmStep, low, step, false);
  const SelectiveScanArgs args{.state_size = net.key_dim,
                               .a = weights.vector(Role::kSsmA),
                               .d = weights.vector(Role::kSsmD),
                               .dt_bias = zeros_->data()};
  recurrent().selective_scan(layer.slice.attention, state_of(layer, true), args, x, b, c, step, mixed);
  recurrent().gated_norm({.order = GatedNormArgs::Order::kGateOnly, .group = inner, .eps = eps_}, z, mixed);
  multiply(layer, Role::kSsmOut, mixed, out, accumulate);
}

void Transformer::run_mamba2(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate) {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t inner = net.inner_size;
  const std::int64_t group_state = net.num_groups * net.key_dim;
  const std::int64_t convolved = inner + 2 * group_state;
  const PackedLayer& weights = layer.weights;
  const MatrixView all = room(kMixed, out.rows, inner + convolved + net.value_heads);
  const MatrixView z = columns(all, 0, inner);
  const MatrixView xbc = columns(all, inner, convolved);
  const MatrixView mixed = room(kAttended, out.rows, inner);
  multiply(layer, Role::kSsmIn, in, all, false);
  recurrent().short_conv(
      layer.slice.attention, state_of(layer, false),
      {.taps = net.taps, .weights = weights.vector(Role::kSsmConv), .bias = weights.bias(Role::kSsmConv), .silu = true},
      xbc, {}, {}, xbc);
  const StateSpaceArgs args{.num_heads = net.value_heads,
                            .head_dim = net.value_dim,
                            .state_size = net.key_dim,
                            .num_groups = net.num_groups,
                            .a = weights.vector(Role::kSsmA),
                            .d = weights.vector(Role::kSsmD),
                            .dt_bias = weights.vector(Role::kSsmDt)};
  recurrent().state_space(layer.slice.attention, state_of(layer, true), args, columns(xbc, 0, inner),
                          columns(xbc, inner, group_state), columns(xbc, inner + group_state, group_state),
                          columns(all, inner + convolved, net.value_heads), mixed);
  using Order = GatedNormArgs::Order;
  recurrent().gated_norm({.order = net.has_norm ? Order::kGateThenNorm : Order::kGateOnly,
                          .group = inner / net.num_groups,
                          .weight = weights.vector(Role::kSsmNorm),
                          .eps = eps_},
                         z, mixed);
  multiply(layer, Role::kSsmOut, mixed, out, accumulate);
}

}  // namespace quire
