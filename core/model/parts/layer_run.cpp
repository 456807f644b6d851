#include "core/model/parts/layer_run.h"

#include <algorithm>

#include "core/model/parts/model_spec.h"
#include "core/model/parts/views.h"
#include "kernels/check.h"
#include "kernels/parallel/rank_sum.h"

namespace quire {

namespace {

// The widest vector of ones or zeros that a layer takes.
std::int64_t widest_vector(const ModelSpec& spec) {
  std::int64_t widest = std::max<std::int64_t>(spec.config.hidden_size, 8);
  for (const LayerSpec& layer : spec.layers)
    widest = std::max({widest, layer.attention.key_dim, layer.attention.value_dim, layer.recurrent.inner_size,
                       layer.recurrent.value_heads});
  return widest;
}

std::unique_ptr<Buffer> constant(Backend& backend, const ModelSpec& spec, float value) {
  return backend.upload(std::vector<float>(static_cast<std::size_t>(widest_vector(spec)), value));
}

std::unique_ptr<Buffer> taps_of_previous(Backend& backend, std::int64_t width) {
  std::vector<float> taps(static_cast<std::size_t>(2 * width), 0.0F);
  std::fill_n(taps.begin(), width, 1.0F);
  return backend.upload(taps);
}

}  // namespace

Workspace::Workspace(const ModelSpec& model, Backend& device, const Widths& widths, std::int64_t first_layer,
                     RankSum* sum)
    : spec(model),
      backend(device),
      rank_sum(sum),
      first_kv_layer(first_layer),
      keeps_one_layer(quire::keeps_one_layer(model)),
      state_places(quire::state_places(model)),
      kept_windows(quire::kept_windows(model)),
      eps(static_cast<float>(model.config.rms_eps)),
      ones(constant(device, model, 1.0F)),
      zeros(constant(device, model, 0.0F)),
      previous_row(model.next_tokens ? taps_of_previous(device, model.config.hidden_size) : nullptr),
      activations(device, widths),
      rotations(model.ropes.size()) {}

GraphOps& Workspace::graph() const {
  GraphOps* ops = backend.graph();
  QUIRE_CHECK(ops != nullptr, "the backend lacks the operations of this architecture");
  return *ops;
}

RecurrentOps& Workspace::recurrent() const {
  RecurrentOps* ops = backend.recurrent();
  QUIRE_CHECK(ops != nullptr, "the backend lacks the operations of recurrent layers");
  return *ops;
}

void Workspace::norm(const PackedGroup& group, WeightRole role, MatrixView x, MatrixView out) const {
  if (spec.norm != NormKind::kLayer) backend.rms_norm(x, group.vector(role), eps, out);
  if (spec.norm == NormKind::kRms) return;
  const float* bias = group.bias(role);
  if (spec.norm == NormKind::kRmsWithBias) {
    if (bias != nullptr) graph().add({const_cast<float*>(bias), out.rows, out.cols, 0}, 1.0F, out);
    return;
  }
  graph().layer_norm(x, group.vector(role), group.bias(role), eps, out);
}

void Workspace::add_low_rank(ActivationName low, const AdapterRun& rows, std::span<const LowRank> changes,
                             const ProductInput& in, MatrixView out) const {
  const std::int64_t count = rows.end - rows.begin;
  ProductInput own = in;
  own.x = row_range(in.x, rows.begin, count);
  for (const LowRank& change : changes) {
    const MatrixView made = room(low, count, change.down->out_features());
    const MatrixView changed = columns(out, change.first_output, change.up->out_features());
    backend.linear(*change.down, own, made, false);
    backend.linear(*change.up, made, row_range(changed, rows.begin, count), true);
  }
}

ProductInput LayerRun::input(WeightRole role, MatrixView x, bool one_product) const {
  if (role == WeightRole::kNoRole) return x;
  if (one_product && model().norm == NormKind::kRms) return normed(x, vector(role), eps());
  const MatrixView made = room(ActivationName::kInput, x.rows, x.cols);
  norm(role, x, made);
  return made;
}

void LayerRun::rotate(MatrixView heads, std::int64_t count, std::int64_t head_dim) const {
  const auto id = static_cast<std::size_t>(spec.attention.rope);
  const Rotation& rotation = work.rotations[id];
  work.backend.rope(heads, count, head_dim, model().ropes[id].style, rotation.cos, rotation.sin);
}

void LayerRun::multiply(WeightRole product, const ProductInput& in, MatrixView out, bool accumulate) const {
  work.multiply(weights, product, in, out, accumulate);
  for (const AdapterRun& run : slice.adapters) {
    const auto changes = run.adapter->of_layer(index, product);
    if (!changes.empty()) work.add_low_rank(ActivationName::kLowRank, run, changes, in, out);
  }
}

void LayerRun::multiply_cut(WeightRole product, const ProductInput& in, MatrixView out, bool accumulate) const {
  if (work.rank_sum == nullptr) return multiply(product, in, out, accumulate);
  const MatrixView share = work.rank_sum->share(out.rows, out.cols);
  multiply(product, in, share, false);
  work.rank_sum->add_up(share, out, accumulate);
}

StatePart LayerRun::state(bool behind_conv) const {
  const StatePlace& place = work.state_places[static_cast<std::size_t>(index)];
  QUIRE_CHECK(slice.states != nullptr, "a recurrent layer without states");
  return {slice.states, place.offset + (behind_conv ? place.conv_floats : 0)};
}

}  // namespace quire
