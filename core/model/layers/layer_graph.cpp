// A single layer: its norms, its branches and their sum.
#include "core/model/layers/transformer.h"
#include "core/model/layers/views.h"
#include "kernels/check.h"

namespace quire {

using Role = WeightRole;

namespace {

// Whether a single product takes all of a mixer's input.
bool takes_one_product(const LayerSpec& spec) {
  if (spec.is_parallel) return false;
  switch (spec.mixer) {
    case Mixer::kAttention:
      return spec.attention.gate == OutputGate::kNone || spec.attention.gate == OutputGate::kInQuery;
    case Mixer::kDeltaNet:
    case Mixer::kKimiDelta:
    case Mixer::kShortConv:
    case Mixer::kMamba:
    case Mixer::kMamba2: return true;
    default: return false;
  }
}

}  // namespace

ProductInput Transformer::branch_input(const Layer& layer, WeightRole role, MatrixView x, bool one_product) {
  if (role == Role::kNoRole) return x;
  if (one_product && spec_.norm == NormKind::kRms) return normed(x, layer.weights.vector(role), eps_);
  const MatrixView made = room(kInput, x.rows, x.cols);
  norm(layer.weights, role, x, made);
  return made;
}

void Transformer::compute_layer(const Layer& layer, MatrixView x) {
  if (layer.slice.streams.data != nullptr) return compute_streams(layer, x);
  compute_branches(layer, x);
  finish_layer(layer, x);
}

void Transformer::finish_layer(const Layer& layer, MatrixView x) {
  if (layer.slice.per_layer.data != nullptr) graph().add(per_layer_branch(layer, x), 1.0F, x);
  if (layer.spec.output_scale) graph().scale(x, layer.weights.vector(Role::kLayerScale));
}

MatrixView Transformer::compute_last_layer(const StepArrays& arrays, Slice& slice, const Layer& layer, MatrixView x) {
  add_mixer(layer, x);
  const MatrixView kept = keep_wanted_rows(arrays, slice, x);
  if (kept.rows == 0) return kept;
  add_feed_forward(layer, kept);
  finish_layer(layer, kept);
  return kept;
}

bool Transformer::narrows_last_layer() const {
  const LayerSpec& last = spec_.layers.back();
  return !last.is_parallel && !last.feed_forward.routes_early && spec_.num_streams == 1 && spec_.per_layer_size == 0 &&
         !spec_.next_tokens && !spec_.scores_mean;
}

void Transformer::compute_branches(const Layer& layer, MatrixView x) {
  if (layer.spec.is_parallel) return add_parallel_branches(layer, x);
  add_mixer(layer, x);
  add_feed_forward(layer, x);
}

void Transformer::add_parallel_branches(const Layer& layer, MatrixView x) {
  const LayerSpec& spec = layer.spec;
  const MatrixView mixed = room(kBranch, x.rows, x.cols);
  const MatrixView fed = room(kBranch2, x.rows, x.cols);
  const ProductInput in = branch_input(layer, spec.mixer_norm, x, false);
  mix(layer, in, mixed, false);
  feed_forward(layer, spec.ffn_norm == Role::kNoRole ? in : branch_input(layer, spec.ffn_norm, x, false), fed, false);
  add_branch(layer, spec.mixer_output_norm, mixed, x);
  add_branch(layer, spec.ffn_output_norm, fed, x);
}

void Transformer::add_mixer(const Layer& layer, MatrixView x) {
  const LayerSpec& spec = layer.spec;
  if (spec.mixer == Mixer::kNone) return;
  const bool direct = spec.mixer_output_norm == Role::kNoRole && spec_.residual_scale == 1.0;
  const bool keeps_input = spec.mixer_sum_norm_2 != Role::kNoRole;
  const MatrixView before = keeps_input ? room(kBranch2, x.rows, x.cols) : MatrixView{};
  if (keeps_input) graph().copy(x, before);
  const MatrixView out = direct ? x : room(kBranch, x.rows, x.cols);
  if (spec.feed_forward.routes_early) route_early(layer, x);
  const ProductInput in = branch_input(layer, spec.mixer_norm, x, takes_one_product(spec) && spec_.laurel_rank == 0);
  mix(layer, in, out, direct);
  if (!direct) add_branch(layer, spec.mixer_output_norm, out, x);
  if (spec_.laurel_rank > 0) add_laurel(layer, in, x);
  if (spec.mixer_sum_norm != Role::kNoRole) norm(layer.weights, spec.mixer_sum_norm, x, x);
  if (keeps_input) {
    graph().add(before, 1.0F, x);
    norm(layer.weights, spec.mixer_sum_norm_2, x, x);
  }
}

void Transformer::add_feed_forward(const Layer& layer, MatrixView x) {
  const LayerSpec& spec = layer.spec;
  const FeedForwardSpec& ffn = spec.feed_forward;
  if (ffn.kind == FeedForwardSpec::Kind::kNone) return;
  if (ffn.kind == FeedForwardSpec::Kind::kBoth) {
    const MatrixView fed = room(kBranch, x.rows, x.cols);
    feed_forward_both(layer, x, fed);
    add_branch(layer, spec.ffn_output_norm, fed, x);
  } else {
    const bool dense = ffn.kind == FeedForwardSpec::Kind::kDense;
    const bool direct = dense && spec.ffn_output_norm == Role::kNoRole && spec_.residual_scale == 1.0;
    const MatrixView out = direct ? x : room(kBranch, x.rows, x.cols);
    feed_forward(layer, branch_input(layer, spec.ffn_norm, x, dense), out, direct);
    if (!direct) add_branch(layer, spec.ffn_output_norm, out, x);
  }
  if (spec.ffn_sum_norm != Role::kNoRole) norm(layer.weights, spec.ffn_sum_norm, x, x);
}

void Transformer::add_branch(const Layer& layer, WeightRole role, MatrixView branch, MatrixView x) {
  if (role != Role::kNoRole) norm(layer.weights, role, branch, branch);
  graph().add(branch, static_cast<float>(spec_.residual_scale), x);
}

// norm(project(gelu(gate(x)) * the layer's embedding of the token))
MatrixView Transformer::per_layer_branch(const Layer& layer, MatrixView x) {
  const std::int64_t size = spec_.per_layer_size;
  const MatrixView gate = room(kActivated, x.rows, size);
  const MatrixView branch = room(kBranch, x.rows, x.cols);
  multiply(layer, Role::kInputGate, x, gate, false);
  graph().activate({.kind = Nonlinearity::kGelu}, gate, columns(layer.slice.per_layer, layer.index * size, size), gate);
  multiply(layer, Role::kInputProjection, gate, branch, false);
  norm(layer.weights, Role::kInputNorm, branch, branch);
  return branch;
}

void Transformer::mix(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate) {
  switch (layer.spec.mixer) {
    case Mixer::kNone: break;
    case Mixer::kAttention: attend(layer, in, out, accumulate); break;
    case Mixer::kLatent: attend_latent(layer, in, out, accumulate); break;
    case Mixer::kDeltaNet: run_delta_net(layer, in, out, accumulate); break;
    case Mixer::kKimiDelta: run_kimi_delta(layer, in, out, accumulate); break;
    case Mixer::kShortConv: run_short_conv(layer, in, out, accumulate); break;
    case Mixer::kMamba: run_mamba(layer, in, out, accumulate); break;
    case Mixer::kMamba2: run_mamba2(layer, in, out, accumulate); break;
    case Mixer::kAttentionAndMamba2:
      attend(layer, in, out, accumulate);
      run_mamba2(layer, in, out, true);
      break;
  }
}

}  // namespace quire
