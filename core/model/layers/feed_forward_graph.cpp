// Dense feed-forwards and experts.
#include <cmath>

#include "core/model/layers/transformer.h"
#include "core/model/layers/views.h"
#include "kernels/check.h"

namespace quire {

using Role = WeightRole;

void Transformer::feed_forward(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate) {
  const FeedForwardSpec& ffn = layer.spec.feed_forward;
  if (ffn.kind == FeedForwardSpec::Kind::kExperts) {
    QUIRE_CHECK(in.form == ProductInput::Form::kPlain && !accumulate, "experts take a made input");
    return feed_experts(layer, in.x, in.x, out);
  }
  const MatrixView gate_up = room(kGateUp, out.rows, ffn.is_gated ? 2 * ffn.size : ffn.size);
  multiply(layer, Role::kGate, in, gate_up, false);
  const bool is_swiglu = ffn.activation.kind == Nonlinearity::kSilu && ffn.is_gated && ffn.activation.limit == 0.0F;
  if (is_swiglu && !ffn.sub_norm && !ffn.sparsity)
    return multiply_cut(layer, Role::kDown, gated(gate_up), out, accumulate);
  const MatrixView activated = room(kActivated, out.rows, ffn.size);
  const MatrixView up = ffn.is_gated ? columns(gate_up, ffn.size, ffn.size) : MatrixView{};
  const MatrixView gate = columns(gate_up, 0, ffn.size);
  if (ffn.sparsity) graph().keep_excess(gate, static_cast<float>(*ffn.sparsity), ffn.sparsity_of_sample);
  graph().activate(ffn.activation, gate, up, activated);
  if (ffn.sub_norm) backend_.rms_norm(activated, layer.weights.vector(Role::kFfnSubNorm), eps_, activated);
  multiply_cut(layer, Role::kDown, activated, out, accumulate);
}

// A dense feed-forward and experts side by side, each with norms of its own; the router sees the unit-norm input.
void Transformer::feed_forward_both(const Layer& layer, MatrixView x, MatrixView out) {
  const MatrixView inputs = room(kExpertIn, x.rows, 2 * x.cols);
  const MatrixView router_in = columns(inputs, 0, x.cols);
  const MatrixView in = columns(inputs, x.cols, x.cols);
  const MatrixView dense = room(kBranch2, x.rows, x.cols);
  feed_forward(layer, branch_input(layer, layer.spec.ffn_norm, x, true), dense, false);
  norm(layer.weights, Role::kPostFfnNorm1, dense, dense);
  backend_.rms_norm(x, layer.weights.vector(Role::kRouterScale), eps_, router_in);
  graph().scale(router_in, 1.0F / std::sqrt(static_cast<float>(x.cols)));
  norm(layer.weights, Role::kPreFfnNorm2, x, in);
  feed_experts(layer, router_in, in, out);
  norm(layer.weights, Role::kPostFfnNorm2, out, out);
  graph().add(dense, 1.0F, out);
}

void Transformer::route_early(const Layer& layer, MatrixView x) {
  const std::int64_t num_experts = layer.spec.feed_forward.num_experts;
  multiply(layer, Role::kRouter, x, room(kRouter, x.rows, num_experts), false);
}

void Transformer::run_experts(const Layer& layer, MatrixView router_in, MatrixView in, MatrixView out) {
  const FeedForwardSpec& ffn = layer.spec.feed_forward;
  const std::int64_t chosen = ffn.route.num_chosen;
  const std::int64_t count = out.rows * chosen;
  const auto experts_of = [&](Role role) -> const auto& {
    return layer.weights.experts[static_cast<std::size_t>(role)];
  };
  const MatrixView logits = room(kRouter, out.rows, ffn.num_experts);
  if (!ffn.routes_early) multiply(layer, Role::kRouter, router_in, logits, false);
  RouteOptions options = ffn.route;
  options.choice_bias = layer.weights.vector(Role::kChoiceBias);
  options.expert_scale = layer.weights.vector(Role::kDownExpertsScale);
  ExpertChoices choices = graph().route(logits, options);
  MatrixView expert_in = in;
  const bool is_latent = ffn.latent_size > 0;
  if (is_latent) {
    expert_in = room(kExpertIn, out.rows, ffn.latent_size);
    multiply(layer, Role::kLatentDown, in, expert_in, false);
  } else if (ffn.weight_input) {
    expert_in = weighted_inputs(in, choices);
    choices = {.num_rows = count, .num_chosen = 1, .ids = choices.ids};
  }
  const std::int64_t width = ffn.experts_gated ? 2 * ffn.expert_size : ffn.expert_size;
  // Room for a row per choice.
  const auto room_of_choices = [&](Slot slot, std::int64_t cols) {
    MatrixView view = room(slot, out.rows, chosen * cols);
    return MatrixView{view.data, count, cols, cols};
  };
  ExpertArgs args{.gate_up = experts_of(Role::kGateExperts),
                  .down = experts_of(Role::kDownExperts),
                  .gated = ffn.experts_gated,
                  .activation = ffn.expert_activation};
  if (!layer.slice.adapters.empty()) add_expert_changes(layer, expert_in.rows / out.rows, args);
  graph().experts(args, choices, expert_in, room_of_choices(kExpertGateUp, width),
                  room_of_choices(kExpertOut, expert_in.cols), is_latent || ffn.weight_input ? expert_in : out);
  if (ffn.weight_input) sum_choices(expert_in, out);
  if (is_latent) multiply(layer, Role::kLatentUp, expert_in, out, false);
  if (const float* bias = layer.weights.vector(Role::kExpertsBias); bias != nullptr)
    graph().add({const_cast<float*>(bias), out.rows, out.cols, 0}, 1.0F, out);
  if (ffn.shared_size > 0) add_shared_expert(layer, in, out);
  if (ffn.experts_scale != 1.0) graph().scale(out, static_cast<float>(ffn.experts_scale));
}

// A row for each choice, multiplied by its weight.
MatrixView Transformer::weighted_inputs(MatrixView in, const ExpertChoices& choices) {
  const MatrixView wide = room(kExpertIn, in.rows, choices.num_chosen * in.cols);
  for (std::int64_t choice = 0; choice < choices.num_chosen; ++choice)
    graph().copy(in, columns(wide, choice * in.cols, in.cols));
  const MatrixView rows{wide.data, choices.count(), in.cols, in.cols};
  graph().scale_by_weights(choices, rows);
  return rows;
}

void Transformer::sum_choices(MatrixView rows, MatrixView out) {
  const std::int64_t chosen = rows.rows / out.rows;
  const MatrixView wide{rows.data, out.rows, chosen * out.cols, chosen * out.cols};
  graph().copy(columns(wide, 0, out.cols), out);
  for (std::int64_t choice = 1; choice < chosen; ++choice)
    graph().add(columns(wide, choice * out.cols, out.cols), 1.0F, out);
}

void Transformer::add_shared_expert(const Layer& layer, MatrixView in, MatrixView out) {
  const FeedForwardSpec& ffn = layer.spec.feed_forward;
  const std::int64_t size = ffn.shared_size;
  const MatrixView gate_up = room(kGateUp, out.rows, ffn.experts_gated ? 2 * size : size);
  const MatrixView activated = room(kActivated, out.rows, size);
  const MatrixView shared = room(kNormed, out.rows, out.cols);
  multiply(layer, Role::kGateShared, in, gate_up, false);
  const MatrixView up = ffn.experts_gated ? columns(gate_up, size, size) : MatrixView{};
  graph().activate(ffn.shared_activation, columns(gate_up, 0, size), up, activated);
  multiply(layer, Role::kDownShared, activated, shared, false);
  if (ffn.shared_gate) {
    const MatrixView gate = room(kRouter, out.rows, 1);
    multiply(layer, Role::kSharedGate, in, gate, false);
    graph().gate(Nonlinearity::kSigmoid, gate, shared);
  }
  graph().add(shared, 1.0F, out);
}

}  // namespace quire
