// A single layer: its norms, its branches and their sum.
#include "core/model/layers/transformer.h"
#include "core/model/parts/parts.h"
#include "core/model/parts/views.h"

namespace quire {

using Role = WeightRole;

void Transformer::compute_layer(const LayerRun& layer, MatrixView x) {
  if (layer.slice.streams.data != nullptr) return compute_streams(layer, x);
  compute_branches(layer, x);
  finish_layer(layer, x);
}

void Transformer::finish_layer(const LayerRun& layer, MatrixView x) {
  if (layer.slice.per_layer.data != nullptr) graph().add(per_layer_branch(layer, x), 1.0F, x);
  if (layer.spec.output_scale) graph().scale(x, layer.weights.vector(Role::kLayerScale));
}

MatrixView Transformer::compute_last_layer(const StepArrays& arrays, Slice& slice, const LayerRun& layer,
                                           MatrixView x) {
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

void Transformer::compute_branches(const LayerRun& layer, MatrixView x) {
  if (layer.spec.is_parallel) return add_parallel_branches(layer, x);
  add_mixer(layer, x);
  add_feed_forward(layer, x);
}

void Transformer::add_parallel_branches(const LayerRun& layer, MatrixView x) {
  const LayerSpec& spec = layer.spec;
  const MatrixView mixed = room(kBranch, x.rows, x.cols);
  const MatrixView fed = room(kBranch2, x.rows, x.cols);
  const ProductInput in = layer.input(spec.mixer_norm, x, false);
  mixer_part(spec).run(layer, in, mixed, false);
  const bool shares_input = spec.ffn_norm == Role::kNoRole;
  feed_forward_part(spec).run(layer, shares_input ? in : layer.input(spec.ffn_norm, x, false), fed, false);
  add_branch(layer, spec.mixer_output_norm, mixed, x);
  add_branch(layer, spec.ffn_output_norm, fed, x);
}

void Transformer::add_mixer(const LayerRun& layer, MatrixView x) {
  const LayerSpec& spec = layer.spec;
  const Part& mixer = mixer_part(spec);
  if (mixer.is_absent()) return;
  const bool direct = spec.mixer_output_norm == Role::kNoRole && spec_.residual_scale == 1.0;
  const bool keeps_input = spec.mixer_sum_norm_2 != Role::kNoRole;
  const MatrixView before = keeps_input ? room(kBranch2, x.rows, x.cols) : MatrixView{};
  if (keeps_input) graph().copy(x, before);
  const MatrixView out = direct ? x : room(kBranch, x.rows, x.cols);
  feed_forward_part(spec).prepare(layer, x);
  const ProductInput in = layer.input(spec.mixer_norm, x, mixer.takes_one_product(spec) && spec_.laurel_rank == 0);
  mixer.run(layer, in, out, direct);
  if (!direct) add_branch(layer, spec.mixer_output_norm, out, x);
  if (spec_.laurel_rank > 0) add_laurel(layer, in, x);
  if (spec.mixer_sum_norm != Role::kNoRole) layer.norm(spec.mixer_sum_norm, x, x);
  if (keeps_input) {
    graph().add(before, 1.0F, x);
    layer.norm(spec.mixer_sum_norm_2, x, x);
  }
}

void Transformer::add_feed_forward(const LayerRun& layer, MatrixView x) {
  const LayerSpec& spec = layer.spec;
  const Part& ffn = feed_forward_part(spec);
  if (ffn.is_absent()) return;
  const bool direct = ffn.can_accumulate(spec) && spec.ffn_output_norm == Role::kNoRole && spec_.residual_scale == 1.0;
  const MatrixView out = direct ? x : room(kBranch, x.rows, x.cols);
  const Role norm = ffn.norms_input() ? Role::kNoRole : spec.ffn_norm;
  ffn.run(layer, layer.input(norm, x, ffn.takes_one_product(spec)), out, direct);
  if (!direct) add_branch(layer, spec.ffn_output_norm, out, x);
  if (spec.ffn_sum_norm != Role::kNoRole) layer.norm(spec.ffn_sum_norm, x, x);
}

void Transformer::add_branch(const LayerRun& layer, WeightRole role, MatrixView branch, MatrixView x) {
  if (role != Role::kNoRole) layer.norm(role, branch, branch);
  graph().add(branch, static_cast<float>(spec_.residual_scale), x);
}

// norm(project(gelu(gate(x)) * the layer's embedding of the token))
MatrixView Transformer::per_layer_branch(const LayerRun& layer, MatrixView x) {
  const std::int64_t size = spec_.per_layer_size;
  const MatrixView gate = room(kActivated, x.rows, size);
  const MatrixView branch = room(kBranch, x.rows, x.cols);
  layer.multiply(Role::kInputGate, x, gate, false);
  graph().activate({.kind = Nonlinearity::kGelu}, gate, columns(layer.slice.per_layer, layer.index * size, size), gate);
  layer.multiply(Role::kInputProjection, gate, branch, false);
  layer.norm(Role::kInputNorm, branch, branch);
  return branch;
}

}  // namespace quire
