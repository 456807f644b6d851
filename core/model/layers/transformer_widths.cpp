// Widths of activation rows, and the memory of a step's activations: for reserve() and the memory plan.
#include <algorithm>

#include "core/model/layers/transformer.h"
#include "core/model/parts/parts.h"

namespace quire {

// Widths needed outside the layers.
void Transformer::fit_model(const ModelSpec& spec, Widths& out) {
  const std::int64_t hidden = spec.config.hidden_size;
  const auto fit = [&](ActivationName which, std::int64_t width) { out.fit(which, width); };
  out[kX] = out[kHeadInput] = out[kHidden] = hidden;
  fit(kAttended, hidden);  // the rows kept after the last mixer
  if (spec.has_head) out[kLogits] = spec.config.vocab_size;
  if (spec.num_labels > 0) {
    out[kLabels] = spec.num_labels;
    out[kLabelInput] = hidden;
    out[kLabelDense] = spec.has_classifier_dense ? hidden : 0;
  }
  for (const RopeConfig& rope : spec.ropes) {
    out[kCos] += rope.rotary_dim / 2;
    out[kSin] += rope.rotary_dim / 2;
  }
  if (!spec.dense_sizes.empty()) fit(kDense, spec.dense_sizes.front());
  fit(kActivated, spec.per_layer_size);
  fit(kPerLayer, 2 * spec.per_layer_size * spec.config.num_layers);
  if (spec.num_streams > 1) {
    fit(kStreams, spec.num_streams * hidden);
    fit(kPredicted, spec.num_streams * hidden);
    fit(kStreamFactors, spec.num_streams * (spec.num_streams + 1));
    fit(kActivated, spec.laurel_rank);
  }
  if (spec.next_tokens) {
    fit(kNextHidden, hidden);
    fit(kNextJoined, 2 * hidden);
    fit(kNext, hidden);
  }
}

Widths Transformer::widths(const ModelSpec& spec) {
  Widths out;
  fit_model(spec, out);
  for (std::int64_t index = 0; index < spec.num_blocks(); ++index) {
    const LayerSpec& layer = spec.layer(index);
    mixer_part(layer).fit(layer, spec.config.hidden_size, out);
    feed_forward_part(layer).fit(layer, spec.config.hidden_size, out);
  }
  if (is_plain(spec)) return out;
  for (const ActivationName which : {kInput, kBranch, kBranch2})
    out.fit(which, spec.config.hidden_size);
  return out;
}

// Whether all branches add to their input directly, behind a norm inside their first product.
bool Transformer::is_plain(const ModelSpec& spec) {
  return std::ranges::all_of(spec.layers, [&](const LayerSpec& layer) {
    return mixer_part(layer).is_plain(layer) && feed_forward_part(layer).is_plain(layer) &&
           spec.norm == NormKind::kRms && spec.is_causal && layer.mixer_output_norm == WeightRole::kNoRole &&
           layer.mixer_norm == WeightRole::kAttentionNorm && layer.ffn_norm == WeightRole::kFfnNorm &&
           !layer.is_parallel && spec.residual_scale == 1.0 && spec.per_layer_size == 0 && spec.num_streams == 1;
  });
}

std::size_t Transformer::activation_bytes(const ModelSpec& spec, std::int64_t num_rows, std::int64_t num_logit_rows) {
  const Widths each = widths(spec);
  std::int64_t per_row = 0;
  std::int64_t per_logit_row = 0;
  for (std::size_t i = 0; i < kNumActivations; ++i) {
    const auto which = static_cast<ActivationName>(i);
    (which < kHeadInput ? per_row : per_logit_row) += each[which];
  }
  per_logit_row -= each[kHidden];
  const std::int64_t slice_rows = most_slice_rows(spec, num_rows);
  return static_cast<std::size_t>(slice_rows * per_row + num_rows * each[kHidden] + num_logit_rows * per_logit_row) *
         sizeof(float);
}

StepBounds Transformer::step_bounds(const ModelSpec& spec, StepBounds step) {
  const Widths each = widths(spec);
  step.slice_rows = most_slice_rows(spec, step.rows);
  step.vocab_size = spec.config.vocab_size;
  for (std::size_t i = 0; static_cast<ActivationName>(i) < kHeadInput; ++i)
    step.widest_row = std::max(step.widest_row, each[static_cast<ActivationName>(i)]);
  step.widest_expert_row = std::max(step.widest_expert_row, spec.config.hidden_size);
  for (std::int64_t index = 0; index < spec.num_blocks(); ++index) {
    const LayerSpec& layer = spec.layer(index);
    mixer_part(layer).bound(layer, step);
    feed_forward_part(layer).bound(layer, step);
  }
  return step;
}

}  // namespace quire
