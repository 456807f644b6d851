#include "core/model/parts/model/layer_branches.h"

#include <algorithm>

#include "core/model/parts/layer_run.h"
#include "core/model/parts/model/layer_embeddings.h"
#include "core/model/parts/model/residual_streams.h"
#include "core/model/parts/parts.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/weight_list.h"

namespace quire {

std::span<const RoleName> LayerBranches::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kAttentionNorm, {"attn_norm", "input_layernorm"}},
      {Role::kAttentionNorm2, {"attn_norm_2", ""}},
      {Role::kPostAttentionNorm, {"post_attention_norm", ""}},
      {Role::kFfnNorm, {"ffn_norm", "post_attention_layernorm"}},
      {Role::kPostFfnNorm, {"post_ffw_norm", ""}},
      {Role::kAttentionOutputNorm, {"attn_output_norm", ""}},
      {Role::kLayerOutputNorm, {"layer_output_norm", ""}},
  };
  return kRoles;
}

void LayerBranches::list_layer(const ModelSpec& /*spec*/, const LayerSpec& layer, WeightList& list) const {
  const std::int64_t hidden = list.hidden_size();
  list.vector(layer.mixer_norm, hidden);
  mixer_part(layer).list_weights(layer, list);
  for (const Role norm : {layer.mixer_output_norm, layer.mixer_sum_norm, layer.mixer_sum_norm_2, layer.ffn_norm})
    list.vector(norm, hidden);
  feed_forward_part(layer).list_weights(layer, list);
  list.vector(layer.ffn_output_norm, hidden);
  list.vector(layer.ffn_sum_norm, hidden);
}

void LayerBranches::check(const ModelSpec& spec, const SpecChecker& check) const {
  for (std::int64_t index = 0; index < spec.num_blocks(); ++index) {
    const LayerSpec& layer = spec.layer(index);
    const Part& mixer = mixer_part(layer);
    mixer.check(layer, index, check);
    // A rotation that no layer uses is not checked.
    if (const std::int64_t turned = mixer.rotated_dim(layer); turned > 0)
      check_rope(spec.ropes.at(static_cast<std::size_t>(layer.attention.rope)), turned, check.where());
    feed_forward_part(layer).check(layer, index, check);
  }
}

void LayerBranches::fit(const ModelSpec& spec, Widths& widths) const {
  const std::int64_t hidden = spec.config.hidden_size;
  widths.fit(kX, hidden);
  widths.fit(kAttended, hidden);  // the rows kept after the last mixer
  for (const RopeConfig& rope : spec.ropes) {
    widths[kCos] += rope.rotary_dim / 2;
    widths[kSin] += rope.rotary_dim / 2;
  }
  for (std::int64_t index = 0; index < spec.num_blocks(); ++index) {
    const LayerSpec& layer = spec.layer(index);
    mixer_part(layer).fit(layer, hidden, widths);
    feed_forward_part(layer).fit(layer, hidden, widths);
  }
  if (is_plain(spec)) return;
  for (const ActivationName which : {kInput, kBranch, kBranch2})
    widths.fit(which, hidden);
}

// Whether all branches add to their input directly, behind a norm inside their first product.
bool LayerBranches::is_plain(const ModelSpec& spec) {
  return std::ranges::all_of(spec.layers, [&](const LayerSpec& layer) {
    return mixer_part(layer).is_plain(layer) && feed_forward_part(layer).is_plain(layer) &&
           spec.norm == NormKind::kRms && spec.is_causal && layer.mixer_output_norm == Role::kNoRole &&
           layer.mixer_norm == Role::kAttentionNorm && layer.ffn_norm == Role::kFfnNorm && !layer.is_parallel &&
           spec.residual_scale == 1.0 && spec.per_layer_size == 0 && spec.num_streams == 1;
  });
}

const char* LayerBranches::lacking(const ModelSpec& spec, Backend& backend) const {
  const char* what = first_lacking({{!spec.is_causal, Ability::kMaskedAttention, "attention in both directions"},
                                    {spec.norm != NormKind::kRms, Ability::kGraph, "layer norms"},
                                    {spec.residual_scale != 1.0, Ability::kGraph, "scaled residuals"}},
                                   backend);
  for (const LayerSpec& layer : spec.layers) {
    if (what == nullptr) what = mixer_part(layer).lacking(layer, spec, backend);
    const bool adds_branches = layer.is_parallel || layer.mixer_output_norm != Role::kNoRole ||
                               layer.ffn_output_norm != Role::kNoRole || layer.mixer_sum_norm_2 != Role::kNoRole;
    if (what == nullptr)
      what = first_lacking({{adds_branches, Ability::kGraph, "branches that are added behind a norm"}}, backend);
    if (what == nullptr) what = feed_forward_part(layer).lacking(layer, spec, backend);
  }
  return what;
}

// --- computation -----------------------------------------------------------------------------------------------------

void LayerBranches::run(const LayerRun& layer, MatrixView x) {
  if (layer.slice.streams.data == nullptr) {
    add_both(layer, x);
    return LayerEmbeddings::finish(layer, x);
  }
  const MatrixView predicted = ResidualStreams::predict(layer, x);
  add_both(layer, x);
  ResidualStreams::correct(layer, predicted, x);
}

bool LayerBranches::can_narrow(const ModelSpec& spec) {
  const LayerSpec& last = spec.layers.back();
  return !last.is_parallel && !last.feed_forward.routes_early && spec.num_streams == 1 && spec.per_layer_size == 0 &&
         !spec.next_tokens && !spec.scores_mean;
}

void LayerBranches::add_both(const LayerRun& layer, MatrixView x) {
  if (layer.spec.is_parallel) return add_parallel(layer, x);
  add_mixer(layer, x);
  add_feed_forward(layer, x);
}

void LayerBranches::add_parallel(const LayerRun& layer, MatrixView x) {
  const LayerSpec& spec = layer.spec;
  const MatrixView mixed = layer.room(kBranch, x.rows, x.cols);
  const MatrixView fed = layer.room(kBranch2, x.rows, x.cols);
  const ProductInput in = layer.input(spec.mixer_norm, x, false);
  mixer_part(spec).run(layer, in, mixed, false);
  const bool shares_input = spec.ffn_norm == Role::kNoRole;
  feed_forward_part(spec).run(layer, shares_input ? in : layer.input(spec.ffn_norm, x, false), fed, false);
  add_branch(layer, spec.mixer_output_norm, mixed, x);
  add_branch(layer, spec.ffn_output_norm, fed, x);
}

void LayerBranches::add_mixer(const LayerRun& layer, MatrixView x) {
  const LayerSpec& spec = layer.spec;
  const Part& mixer = mixer_part(spec);
  if (mixer.is_absent()) return;
  const bool has_laurel = layer.model().laurel_rank > 0;
  const bool direct = spec.mixer_output_norm == Role::kNoRole && layer.model().residual_scale == 1.0;
  const bool keeps_input = spec.mixer_sum_norm_2 != Role::kNoRole;
  const MatrixView before = keeps_input ? layer.room(kBranch2, x.rows, x.cols) : MatrixView{};
  if (keeps_input) layer.graph().copy(x, before);
  const MatrixView out = direct ? x : layer.room(kBranch, x.rows, x.cols);
  feed_forward_part(spec).prepare(layer, x);
  const ProductInput in = layer.input(spec.mixer_norm, x, mixer.takes_one_product(spec) && !has_laurel);
  mixer.run(layer, in, out, direct);
  if (!direct) add_branch(layer, spec.mixer_output_norm, out, x);
  if (has_laurel) ResidualStreams::add_laurel(layer, in, x);
  if (spec.mixer_sum_norm != Role::kNoRole) layer.norm(spec.mixer_sum_norm, x, x);
  if (keeps_input) {
    layer.graph().add(before, 1.0F, x);
    layer.norm(spec.mixer_sum_norm_2, x, x);
  }
}

void LayerBranches::add_feed_forward(const LayerRun& layer, MatrixView x) {
  const LayerSpec& spec = layer.spec;
  const Part& ffn = feed_forward_part(spec);
  if (ffn.is_absent()) return;
  const bool direct =
      ffn.can_accumulate(spec) && spec.ffn_output_norm == Role::kNoRole && layer.model().residual_scale == 1.0;
  const MatrixView out = direct ? x : layer.room(kBranch, x.rows, x.cols);
  const Role norm = ffn.norms_input() ? Role::kNoRole : spec.ffn_norm;
  ffn.run(layer, layer.input(norm, x, ffn.takes_one_product(spec)), out, direct);
  if (!direct) add_branch(layer, spec.ffn_output_norm, out, x);
  if (spec.ffn_sum_norm != Role::kNoRole) layer.norm(spec.ffn_sum_norm, x, x);
}

void LayerBranches::add_branch(const LayerRun& layer, WeightRole role, MatrixView branch, MatrixView x) {
  if (role != Role::kNoRole) layer.norm(role, branch, branch);
  layer.graph().add(branch, static_cast<float>(layer.model().residual_scale), x);
}

}  // namespace quire
