#include "core/model/parts/model/layer_embeddings.h"

#include <algorithm>
#include <cmath>

#include "core/model/parts/layer_run.h"
#include "core/model/parts/part.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

std::span<const RoleName> LayerEmbeddings::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kPerLayerEmbedding, {"per_layer_token_embd", "embed_tokens_per_layer"}},
      {Role::kPerLayerProjection, {"per_layer_model_proj", "per_layer_model_projection"}},
      {Role::kPerLayerNorm, {"per_layer_proj_norm", "per_layer_projection_norm"}},
      {Role::kInputGate, {"inp_gate", "per_layer_input_gate"}},
      {Role::kInputProjection, {"proj", "per_layer_projection"}},
      {Role::kInputNorm, {"post_norm", "post_per_layer_input_norm"}},
      {Role::kLayerScale, {"layer_output_scale", "layer_scalar$"}},
  };
  return kRoles;
}

void LayerEmbeddings::list_weights(const ModelSpec& spec, WeightList& list) const {
  if (spec.per_layer_size == 0) return;
  const std::int64_t width = spec.per_layer_size * spec.config.num_layers;
  list.rows(Role::kPerLayerEmbedding, spec.per_layer_rows, width);
  list.alone(Role::kPerLayerProjection, width, list.hidden_size());
  list.vector(Role::kPerLayerNorm, spec.per_layer_size);
}

void LayerEmbeddings::list_layer(const ModelSpec& spec, const LayerSpec& layer, WeightList& list) const {
  const std::int64_t hidden = list.hidden_size();
  if (spec.per_layer_size > 0) {
    list.alone(Role::kInputGate, spec.per_layer_size, hidden);
    list.alone(Role::kInputProjection, hidden, spec.per_layer_size);
    list.vector(Role::kInputNorm, hidden);
  }
  if (layer.output_scale) list.vector(Role::kLayerScale, 1);
}

void LayerEmbeddings::check(const ModelSpec& spec, const SpecChecker& check) const {
  check.in_range("the width of embeddings for each layer", spec.per_layer_size, 0, 1 << 20);
  check.in_range("the rows of embeddings for each layer", spec.per_layer_rows, 0, 1 << 24);
}

void LayerEmbeddings::fit(const ModelSpec& spec, Widths& widths) const {
  widths.fit(kActivated, spec.per_layer_size);
  widths.fit(kPerLayer, 2 * spec.per_layer_size * spec.config.num_layers);
}

const char* LayerEmbeddings::lacking(const ModelSpec& spec, Backend& backend) const {
  const bool scales = std::ranges::any_of(spec.layers, &LayerSpec::output_scale);
  return first_lacking({{spec.per_layer_size > 0, Ability::kGraph, "embeddings for each layer"},
                        {scales, Ability::kGraph, "layers with a factor of their own"}},
                       backend);
}

MatrixView LayerEmbeddings::run(const ModelRun& model, std::span<const std::int32_t> ids, MatrixView x) {
  const ModelSpec& spec = model.spec();
  const std::int64_t size = spec.per_layer_size;
  const std::int64_t width = size * spec.config.num_layers;
  const MatrixView both = model.room(kPerLayer, x.rows, 2 * width);
  const MatrixView own = columns(both, 0, width);
  const MatrixView projected = columns(both, width, width);
  std::vector<std::int32_t>& listed = model.work.listed_ids;
  listed.assign(ids.begin(), ids.end());
  for (std::int32_t& id : listed)
    id = id < spec.per_layer_rows ? id : 0;
  model.embed(Role::kPerLayerEmbedding, listed, own);
  model.graph().scale(own, std::sqrt(static_cast<float>(size)));
  model.multiply(Role::kPerLayerProjection, x, projected);
  model.graph().scale(projected, 1.0F / std::sqrt(static_cast<float>(spec.config.hidden_size)));
  model.backend().head_rms_norm(projected, spec.config.num_layers, size, model.vector(Role::kPerLayerNorm),
                                model.eps());
  model.graph().add(projected, 1.0F, own);
  model.graph().scale(own, 1.0F / std::sqrt(2.0F));
  return own;
}

// norm(project(gelu(gate(x)) * the layer's embedding of the token))
MatrixView LayerEmbeddings::branch(const LayerRun& layer, MatrixView x) {
  const std::int64_t size = layer.model().per_layer_size;
  const MatrixView gate = layer.room(kActivated, x.rows, size);
  const MatrixView out = layer.room(kBranch, x.rows, x.cols);
  layer.multiply(Role::kInputGate, x, gate, false);
  layer.graph().activate({.kind = Nonlinearity::kGelu}, gate, columns(layer.slice.per_layer, layer.index * size, size),
                         gate);
  layer.multiply(Role::kInputProjection, gate, out, false);
  layer.norm(Role::kInputNorm, out, out);
  return out;
}

void LayerEmbeddings::finish(const LayerRun& layer, MatrixView x) {
  if (layer.slice.per_layer.data != nullptr) layer.graph().add(branch(layer, x), 1.0F, x);
  if (layer.spec.output_scale) layer.graph().scale(x, layer.vector(Role::kLayerScale));
}

}  // namespace quire
