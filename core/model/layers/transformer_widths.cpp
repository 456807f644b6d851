// Widths of activation rows, and the memory of a step's activations: for reserve() and the memory plan.
#include <algorithm>

#include "core/model/layers/transformer.h"

namespace quire {

// Widths needed outside the layers.
void Transformer::fit_model(const ModelSpec& spec, Widths& out) {
  const std::int64_t hidden = spec.config.hidden_size;
  const auto fit = [&](Slot slot, std::int64_t width) { out[slot] = std::max(out[slot], width); };
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

Transformer::Widths Transformer::widths(const ModelSpec& spec) {
  Widths out{};
  fit_model(spec, out);
  for (std::int64_t layer = 0; layer < spec.num_blocks(); ++layer)
    fit_layer(spec, spec.layer(layer), out);
  return out;
}

void Transformer::fit_layer(const ModelSpec& spec, const LayerSpec& layer, Widths& out) {
  const std::int64_t hidden = spec.config.hidden_size;
  const auto fit = [&](Slot slot, std::int64_t width) { out[slot] = std::max(out[slot], width); };
  const AttentionSpec& attention = layer.attention;
  const FeedForwardSpec& ffn = layer.feed_forward;
  const RecurrentSpec& net = layer.recurrent;
  const std::int64_t query = attention.num_heads * attention.key_dim;
  const std::int64_t gate = attention.gate == OutputGate::kInQuery ? query : 0;
  fit(kQkv, query + gate + attention.num_kv_heads * (attention.key_dim + attention.value_dim));
  fit(kAttended, attention.num_heads * attention.value_dim);
  fit(kGateUp, 2 * ffn.size);
  fit_wide_heads(layer, out);
  if (is_plain(spec)) return;
  for (const Slot slot : {kInput, kNormed, kBranch, kBranch2})
    fit(slot, hidden);
  fit(kActivated, std::max({ffn.size, ffn.shared_size, spec.per_layer_size, attention.num_heads,
                            attention.gate == OutputGate::kFull ? attention.num_heads * attention.value_dim : 0}));
  fit(kGateUp, 2 * std::max(ffn.shared_size, spec.per_layer_size));
  if (ffn.num_experts > 0) {
    const std::int64_t chosen = ffn.route.num_chosen;
    const std::int64_t width = ffn.latent_size > 0 ? ffn.latent_size : hidden;
    fit(kRouter, ffn.num_experts);
    fit(kExpertIn, std::max(2 * std::max(width, hidden), ffn.weight_input ? chosen * hidden : 0));
    fit(kExpertGateUp, chosen * 2 * ffn.expert_size);
    fit(kExpertOut, chosen * width);
  }
  if (layer.mixer == Mixer::kLatent) {
    const LatentSpec& latent = layer.latent;
    const std::int64_t heads = attention.num_heads;
    const std::int64_t row_dim = cached_heads(layer).key_dim;
    fit(kQkv, latent.query_rank + row_dim);
    fit(kQuery, heads * (latent.nope_dim + latent.rope_dim + row_dim));
    fit(kAttended, heads * (latent.kv_rank + latent.value_dim));
  }
  const std::int64_t keys = net.key_heads * net.key_dim;
  const std::int64_t values = net.value_heads * net.value_dim;
  fit(kMixed, std::max({2 * keys + 2 * values + 2 * net.value_heads, 5 * values + 2 * net.value_dim + net.value_heads,
                        2 * net.inner_size + 2 * net.num_groups * net.key_dim + net.value_heads, 3 * net.inner_size}));
  fit(kAttended, std::max(3 * values, net.inner_size));
  if (layer.mixer == Mixer::kMamba) {
    fit(kQkv, net.step_rank + 2 * net.key_dim);
    fit(kAttended, 2 * net.inner_size);
  }
}

// Widths of heads that the cache pads.
void Transformer::fit_wide_heads(const LayerSpec& layer, Widths& out) {
  const AttentionSpec& attention = layer.attention;
  const bool attends = layer.mixer == Mixer::kAttention || layer.mixer == Mixer::kAttentionAndMamba2;
  const KvLayerShape cached = cached_heads(layer);
  if (!attends || (cached.key_dim == attention.key_dim && cached.value_dim == attention.value_dim)) return;
  const auto fit = [&](Slot slot, std::int64_t width) { out[slot] = std::max(out[slot], width); };
  fit(kWideQuery, attention.num_heads * cached.key_dim);
  fit(kWideKey, attention.num_kv_heads * cached.key_dim);
  fit(kWideValue, attention.num_kv_heads * cached.value_dim);
  fit(kWideAttended, attention.num_heads * cached.value_dim);
}

bool Transformer::is_plain(const ModelSpec& spec) {
  return std::ranges::all_of(spec.layers, [&](const LayerSpec& layer) {
    return layer.mixer == Mixer::kAttention && layer.feed_forward.kind == FeedForwardSpec::Kind::kDense &&
           layer.feed_forward.activation.kind == Nonlinearity::kSilu && layer.feed_forward.is_gated &&
           spec.norm == NormKind::kRms && spec.is_causal && layer.mixer_output_norm == WeightRole::kNoRole &&
           layer.mixer_norm == WeightRole::kAttentionNorm && layer.ffn_norm == WeightRole::kFfnNorm &&
           layer.attention.gate == OutputGate::kNone && !layer.attention.output_norm && !layer.is_parallel &&
           spec.residual_scale == 1.0 && spec.per_layer_size == 0 && spec.num_streams == 1 &&
           !layer.feed_forward.sub_norm;
  });
}

std::size_t Transformer::activation_bytes(const ModelSpec& spec, std::int64_t num_rows, std::int64_t num_logit_rows) {
  const Widths each = widths(spec);
  std::int64_t per_row = 0;
  std::int64_t per_logit_row = 0;
  for (std::size_t slot = 0; slot < kNumSlots; ++slot)
    (slot < kHeadInput ? per_row : per_logit_row) += each[slot];
  per_logit_row -= each[kHidden];
  const std::int64_t slice_rows = most_slice_rows(spec, num_rows);
  return static_cast<std::size_t>(slice_rows * per_row + num_rows * each[kHidden] + num_logit_rows * per_logit_row) *
         sizeof(float);
}

StepBounds Transformer::step_bounds(const ModelSpec& spec, StepBounds step) {
  const Widths each = widths(spec);
  step.slice_rows = most_slice_rows(spec, step.rows);
  step.vocab_size = spec.config.vocab_size;
  step.widest_row = *std::max_element(each.begin(), each.begin() + kHeadInput);
  for (std::int64_t number = 0; number < spec.num_blocks(); ++number) {
    const LayerSpec& layer = spec.layer(number);
    const FeedForwardSpec& ffn = layer.feed_forward;
    const KvLayerShape cached = cached_heads(layer);
    step.num_experts = std::max(step.num_experts, ffn.num_experts);
    step.chosen_rows = std::max<std::int64_t>(step.chosen_rows, ffn.route.num_chosen);
    step.widest_expert_row = std::max({step.widest_expert_row, spec.config.hidden_size, ffn.expert_size});
    step.partial_floats =
        std::max(step.partial_floats, layer.attention.num_heads * (cached.key_dim + cached.value_dim + 2));
  }
  return step;
}

}  // namespace quire
