// Residual streams (AltUp, arXiv 2301.13310) and the low-rank branch beside attention (LAuReL, arXiv 2411.07501).
#include <cmath>

#include "core/model/layers/transformer.h"
#include "core/model/parts/views.h"

namespace quire {

using Role = WeightRole;

namespace {

MatrixView stream(MatrixView streams, std::int64_t index, std::int64_t width) {
  return columns(streams, index * width, width);
}

}  // namespace

void Transformer::split_streams(Slice& slice, MatrixView x) {
  slice.streams = room(kStreams, x.rows, spec_.num_streams * x.cols);
  graph().copy(x, stream(slice.streams, 0, x.cols));
  const auto& products = weights_.model.experts[static_cast<std::size_t>(Role::kStreamIn)];
  for (std::size_t i = 0; i < products.size(); ++i) {
    const MatrixView made = stream(slice.streams, static_cast<std::int64_t>(i) + 1, x.cols);
    backend_.linear(*products[i], x, made, false);
    graph().match_length(x, made);
  }
}

void Transformer::merge_streams(const Slice& slice, MatrixView x) {
  const MatrixView first = stream(slice.streams, 0, x.cols);
  const MatrixView made = room(kBranch, x.rows, x.cols);
  graph().copy(first, x);
  const auto& products = weights_.model.experts[static_cast<std::size_t>(Role::kStreamOut)];
  for (std::size_t i = 0; i < products.size(); ++i) {
    backend_.linear(*products[i], stream(slice.streams, static_cast<std::int64_t>(i) + 1, x.cols), made, false);
    graph().match_length(first, made);
    graph().add(made, 1.0F, x);
  }
  graph().scale(x, 1.0F / static_cast<float>(spec_.num_streams));
}

// `role` applied to tanh(router(norm(x) / width)).
MatrixView Transformer::stream_factors(const LayerRun& layer, WeightRole role, MatrixView x, std::int64_t count) {
  const MatrixView in = room(kInput, x.rows, x.cols);
  const MatrixView both = room(kStreamFactors, x.rows, spec_.num_streams + count);
  const MatrixView shares = columns(both, 0, spec_.num_streams);
  const MatrixView factors = columns(both, spec_.num_streams, count);
  layer.norm(Role::kStreamRouterNorm, x, in);
  graph().scale(in, 1.0F / static_cast<float>(x.cols));
  layer.multiply(Role::kStreamRouter, in, shares, false);
  graph().activate({.kind = Nonlinearity::kTanh}, shares, {}, shares);
  layer.multiply(role, shares, factors, false);
  return factors;
}

void Transformer::compute_streams(const LayerRun& layer, MatrixView x) {
  const MatrixView streams = layer.slice.streams;
  const std::int64_t count = spec_.num_streams;
  const MatrixView predicted = room(kPredicted, streams.rows, streams.cols);
  const MatrixView first = stream(streams, 0, x.cols);
  graph().mix_streams(stream_factors(layer, Role::kStreamPrediction, first, count * count), streams, predicted);
  graph().copy(stream(predicted, 0, x.cols), x);
  compute_branches(layer, x);
  const MatrixView factors = stream_factors(layer, Role::kStreamCorrection, x, count);
  graph().add(stream(predicted, 0, x.cols), -1.0F, x);
  graph().copy(predicted, streams);
  graph().add_to_streams(factors, x, streams);
  graph().copy(first, x);
  graph().scale_columns(x, layer.weights.vector(Role::kStreamScale));
  const MatrixView branch = per_layer_branch(layer, x);
  for (std::int64_t i = 1; i < count; ++i)
    graph().add(branch, 1.0F, stream(streams, i, x.cols));
}

// x = (x + in + norm(right(left(in)))) / sqrt(2)
void Transformer::add_laurel(const LayerRun& layer, const ProductInput& in, MatrixView x) {
  const MatrixView low = room(kActivated, x.rows, spec_.laurel_rank);
  const MatrixView made = room(kBranch2, x.rows, x.cols);
  layer.multiply(Role::kLaurelLeft, in, low, false);
  layer.multiply(Role::kLaurelRight, low, made, false);
  layer.norm(Role::kLaurelNorm, made, made);
  graph().add(in.x, 1.0F, x);
  graph().add(made, 1.0F, x);
  graph().scale(x, 1.0F / std::sqrt(2.0F));
}

}  // namespace quire
