#include "core/model/parts/model/residual_streams.h"

#include <cmath>

#include "core/model/parts/layer_run.h"
#include "core/model/parts/model/layer_embeddings.h"
#include "core/model/parts/part.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

namespace {

MatrixView stream(MatrixView streams, std::int64_t index, std::int64_t width) {
  return columns(streams, index * width, width);
}

}  // namespace

std::span<const RoleName> ResidualStreams::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kStreamIn, {"altup_proj", "altup_projections.#"}},
      {Role::kStreamOut, {"altup_unembd_proj", "altup_unembed_projections.#"}},
      {Role::kStreamRouter, {"altup_router", "altup.modality_router"}},
      {Role::kStreamRouterNorm, {"altup_router_norm", "altup.router_norm"}},
      {Role::kStreamPrediction, {"altup_predict_coef", "altup.prediction_coefs"}},
      {Role::kStreamCorrection, {"altup_correct_coef", "altup.correction_coefs"}},
      {Role::kStreamScale, {"altup_correct_scale", "altup.correct_output_scale$"}},
      {Role::kLaurelLeft, {"laurel_l", "laurel.linear_left"}},
      {Role::kLaurelRight, {"laurel_r", "laurel.linear_right"}},
      {Role::kLaurelNorm, {"laurel_post_norm", "laurel.post_laurel_norm"}},
  };
  return kRoles;
}

void ResidualStreams::list_weights(const ModelSpec& spec, WeightList& list) const {
  if (spec.num_streams == 1) return;
  for (const Role role : {Role::kStreamIn, Role::kStreamOut})
    list.experts(role, role, list.hidden_size(), list.hidden_size(), spec.num_streams - 1);
}

void ResidualStreams::list_layer(const ModelSpec& spec, const LayerSpec& /*layer*/, WeightList& list) const {
  const std::int64_t hidden = list.hidden_size();
  const std::int64_t count = spec.num_streams;
  if (count == 1) return;
  list.alone(Role::kStreamRouter, count, hidden);
  list.vector(Role::kStreamRouterNorm, hidden);
  list.alone(Role::kStreamPrediction, count * count, count);
  list.alone(Role::kStreamCorrection, count, count);
  list.vector(Role::kStreamScale, hidden);
  if (spec.laurel_rank == 0) return;
  list.alone(Role::kLaurelLeft, spec.laurel_rank, hidden);
  list.alone(Role::kLaurelRight, hidden, spec.laurel_rank);
  list.vector(Role::kLaurelNorm, hidden);
}

void ResidualStreams::check(const ModelSpec& spec, const SpecChecker& check) const {
  check.in_range("the number of residual streams", spec.num_streams, 1, 16);
  check.in_range("the rank of the branch beside attention", spec.laurel_rank, 0, 1 << 14);
  check.require(spec.num_streams == 1 || spec.per_layer_size > 0,
                "residual streams without an embedding for each layer are not supported");
}

void ResidualStreams::fit(const ModelSpec& spec, Widths& widths) const {
  if (spec.num_streams == 1) return;
  widths.fit(kStreams, spec.num_streams * spec.config.hidden_size);
  widths.fit(kPredicted, spec.num_streams * spec.config.hidden_size);
  widths.fit(kStreamFactors, spec.num_streams * (spec.num_streams + 1));
  widths.fit(kActivated, spec.laurel_rank);
}

const char* ResidualStreams::lacking(const ModelSpec& spec, Backend& backend) const {
  return first_lacking({{spec.num_streams > 1, Ability::kStreams, "residual streams"},
                        {spec.laurel_rank > 0, Ability::kGraph, "low-rank branches"}},
                       backend);
}

std::string ResidualStreams::why_not_cut(const ModelSpec& spec, int /*num_ranks*/) const {
  return spec.num_streams > 1 || spec.laurel_rank > 0 ? "it has residual streams" : "";
}

MatrixView ResidualStreams::split(const ModelRun& model, MatrixView x) {
  const MatrixView streams = model.room(kStreams, x.rows, model.spec().num_streams * x.cols);
  model.graph().copy(x, stream(streams, 0, x.cols));
  const auto& products = model.weights.experts_of(Role::kStreamIn);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const MatrixView made = stream(streams, static_cast<std::int64_t>(i) + 1, x.cols);
    model.backend().linear(*products[i], x, made, false);
    model.graph().match_length(x, made);
  }
  return streams;
}

void ResidualStreams::merge(const ModelRun& model, MatrixView streams, MatrixView x) {
  const MatrixView first = stream(streams, 0, x.cols);
  const MatrixView made = model.room(kBranch, x.rows, x.cols);
  model.graph().copy(first, x);
  const auto& products = model.weights.experts_of(Role::kStreamOut);
  for (std::size_t i = 0; i < products.size(); ++i) {
    model.backend().linear(*products[i], stream(streams, static_cast<std::int64_t>(i) + 1, x.cols), made, false);
    model.graph().match_length(first, made);
    model.graph().add(made, 1.0F, x);
  }
  model.graph().scale(x, 1.0F / static_cast<float>(model.spec().num_streams));
}

// `role` applied to tanh(router(norm(x) / width)).
MatrixView ResidualStreams::factors(const LayerRun& layer, WeightRole role, MatrixView x, std::int64_t count) {
  const std::int64_t num_streams = layer.model().num_streams;
  const MatrixView in = layer.room(kInput, x.rows, x.cols);
  const MatrixView both = layer.room(kStreamFactors, x.rows, num_streams + count);
  const MatrixView shares = columns(both, 0, num_streams);
  const MatrixView made = columns(both, num_streams, count);
  layer.norm(Role::kStreamRouterNorm, x, in);
  layer.graph().scale(in, 1.0F / static_cast<float>(x.cols));
  layer.multiply(Role::kStreamRouter, in, shares, false);
  layer.graph().activate({.kind = Nonlinearity::kTanh}, shares, {}, shares);
  layer.multiply(role, shares, made, false);
  return made;
}

MatrixView ResidualStreams::predict(const LayerRun& layer, MatrixView x) {
  const MatrixView streams = layer.slice.streams;
  const std::int64_t count = layer.model().num_streams;
  const MatrixView predicted = layer.room(kPredicted, streams.rows, streams.cols);
  const MatrixView first = stream(streams, 0, x.cols);
  layer.graph().mix_streams(factors(layer, Role::kStreamPrediction, first, count * count), streams, predicted);
  layer.graph().copy(stream(predicted, 0, x.cols), x);
  return predicted;
}

void ResidualStreams::correct(const LayerRun& layer, MatrixView predicted, MatrixView x) {
  const MatrixView streams = layer.slice.streams;
  const std::int64_t count = layer.model().num_streams;
  GraphOps& graph = layer.graph();
  const MatrixView corrections = factors(layer, Role::kStreamCorrection, x, count);
  graph.add(stream(predicted, 0, x.cols), -1.0F, x);
  graph.copy(predicted, streams);
  graph.add_to_streams(corrections, x, streams);
  graph.copy(stream(streams, 0, x.cols), x);
  graph.scale_columns(x, layer.vector(Role::kStreamScale));
  const MatrixView branch = LayerEmbeddings::branch(layer, x);
  for (std::int64_t i = 1; i < count; ++i)
    graph.add(branch, 1.0F, stream(streams, i, x.cols));
}

void ResidualStreams::add_laurel(const LayerRun& layer, const ProductInput& in, MatrixView x) {
  const MatrixView low = layer.room(kActivated, x.rows, layer.model().laurel_rank);
  const MatrixView made = layer.room(kBranch2, x.rows, x.cols);
  layer.multiply(Role::kLaurelLeft, in, low, false);
  layer.multiply(Role::kLaurelRight, low, made, false);
  layer.norm(Role::kLaurelNorm, made, made);
  layer.graph().add(in.x, 1.0F, x);
  layer.graph().add(made, 1.0F, x);
  layer.graph().scale(x, 1.0F / std::sqrt(2.0F));
}

}  // namespace quire
