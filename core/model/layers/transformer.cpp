#include "core/model/layers/transformer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/model/layers/views.h"
#include "kernels/check.h"

namespace quire {

namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

Transformer::Transformer(const ModelSpec& spec, PackedModel weights, Backend& backend,
                         std::shared_ptr<const void> sources_owner)
    : spec_(spec),
      weights_(std::move(weights)),
      backend_(backend),
      sources_owner_(std::move(sources_owner)),
      state_places_(state_places(spec)),
      eps_(static_cast<float>(spec.config.rms_eps)),
      widths_(widths(spec)) {
  for (const RopeConfig& rope : spec_.ropes)
    ropes_.push_back(rope_frequencies(rope));
  rotations_.resize(ropes_.size());
  std::int64_t widest = spec.config.hidden_size;
  for (const LayerSpec& layer : spec.layers)
    widest = std::max({widest, layer.attention.key_dim, layer.attention.value_dim});
  ones_ = backend.upload(std::vector<float>(at(widest), 1.0F));
}

GraphOps& Transformer::graph() const {
  GraphOps* ops = backend_.graph();
  QUIRE_CHECK(ops != nullptr, "the backend lacks the operations of this architecture");
  return *ops;
}

RecurrentOps& Transformer::recurrent() const {
  RecurrentOps* ops = backend_.recurrent();
  QUIRE_CHECK(ops != nullptr, "the backend lacks the operations of recurrent layers");
  return *ops;
}

MatrixView Transformer::room(Slot slot, std::int64_t rows, std::int64_t cols) {
  QUIRE_CHECK(cols <= widths_[slot], "an activation wider than planned");
  Activation& activation = activations_[slot];
  if (rows > activation.capacity) {
    activation.buffer.reset();  // the old rows are not needed: free them before the new ones are allocated
    // A power of two: batches that grow by one row at a time seldom allocate.
    activation.capacity = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
    activation.buffer = backend_.allocate(activation.capacity * widths_[slot]);
  }
  return {.data = activation.buffer == nullptr ? nullptr : activation.buffer->data(),
          .rows = rows,
          .cols = cols,
          .stride = cols};
}

Transformer::Widths Transformer::widths(const ModelSpec& spec) {
  Widths out{};
  const std::int64_t hidden = spec.config.hidden_size;
  const auto fit = [&](Slot slot, std::int64_t width) { out[slot] = std::max(out[slot], width); };
  out[kX] = out[kHidden] = hidden;
  fit(kLogits, std::max(spec.has_head ? spec.config.vocab_size : 0, spec.num_labels));
  for (const RopeConfig& rope : spec.ropes) {
    out[kCos] += rope.rotary_dim / 2;
    out[kSin] += rope.rotary_dim / 2;
  }
  fit(kPerLayer, 2 * spec.per_layer_size * spec.config.num_layers);
  const bool is_plain = Transformer::is_plain(spec);
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    const FeedForwardSpec& ffn = layer.feed_forward;
    const RecurrentSpec& net = layer.recurrent;
    const std::int64_t query = attention.num_heads * attention.key_dim;
    const std::int64_t gate = attention.gate == OutputGate::kInQuery ? query : 0;
    fit(kQkv, query + gate + attention.num_kv_heads * (attention.key_dim + attention.value_dim));
    fit(kAttended, attention.num_heads * attention.value_dim);
    fit(kGateUp, 2 * ffn.size);
    if (is_plain) continue;
    for (const Slot slot : {kInput, kNormed, kBranch, kBranch2})
      fit(slot, hidden);
    fit(kActivated, std::max({ffn.size, ffn.shared_size, spec.per_layer_size, attention.num_heads}));
    fit(kGateUp, 2 * std::max(ffn.shared_size, spec.per_layer_size));
    if (ffn.num_experts > 0) {
      const std::int64_t chosen = ffn.route.num_chosen;
      const std::int64_t width = ffn.latent_size > 0 ? ffn.latent_size : hidden;
      fit(kRouter, ffn.num_experts);
      fit(kExpertIn, 2 * std::max(width, hidden));
      fit(kExpertGateUp, chosen * 2 * ffn.expert_size);
      fit(kExpertActivated, chosen * ffn.expert_size);
      fit(kExpertOut, chosen * width);
    }
    if (layer.mixer == Mixer::kLatent) {
      const LatentSpec& latent = layer.latent;
      const std::int64_t heads = attention.num_heads;
      fit(kQkv, latent.query_rank + latent.kv_rank + latent.rope_dim);
      fit(kQuery, heads * (latent.nope_dim + latent.rope_dim + latent.kv_rank + latent.rope_dim));
      fit(kAttended, heads * (latent.kv_rank + latent.value_dim));
    }
    const std::int64_t keys = net.key_heads * net.key_dim;
    const std::int64_t values = net.value_heads * net.value_dim;
    fit(kMixed,
        std::max({2 * keys + 2 * values + 2 * net.value_heads, 5 * values + 2 * net.value_dim + net.value_heads,
                  2 * net.inner_size + 2 * net.num_groups * net.key_dim + net.value_heads, 3 * net.inner_size}));
    fit(kAttended, std::max(3 * values, net.inner_size));
  }
  return out;
}

bool Transformer::is_plain(const ModelSpec& spec) {
  return std::ranges::all_of(spec.layers, [&](const LayerSpec& layer) {
    return layer.mixer == Mixer::kAttention && layer.feed_forward.kind == FeedForwardSpec::Kind::kDense &&
           layer.feed_forward.activation.kind == Nonlinearity::kSilu && layer.feed_forward.is_gated &&
           spec.norm == NormKind::kRms && spec.is_causal && layer.mixer_output_norm == WeightRole::kNoRole &&
           layer.mixer_norm == WeightRole::kAttentionNorm && layer.ffn_norm == WeightRole::kFfnNorm &&
           layer.attention.gate == OutputGate::kNone && !layer.attention.output_norm && !layer.is_parallel &&
           spec.residual_scale == 1.0 && spec.per_layer_size == 0 && !layer.feed_forward.sub_norm;
  });
}

std::size_t Transformer::activation_bytes(const ModelSpec& spec, std::int64_t num_rows, std::int64_t num_logit_rows) {
  const Widths each = widths(spec);
  std::int64_t per_row = 0;
  for (int slot = 0; slot < kNumSlots; ++slot) {
    if (slot != kHidden && slot != kLogits) per_row += each[static_cast<std::size_t>(slot)];
  }
  const std::int64_t per_logit_row = each[kHidden] + each[kLogits];
  const auto rounded = [](std::int64_t rows) { return std::bit_ceil(static_cast<std::uint64_t>(rows)); };
  const std::int64_t most = spec.is_causal ? kMaxRows : std::max(kMaxRows, spec.config.max_context);
  return (rounded(std::min(num_rows, most)) * static_cast<std::uint64_t>(per_row) +
          rounded(num_logit_rows) * static_cast<std::uint64_t>(per_logit_row)) *
         sizeof(float);
}

void Transformer::multiply(const PackedGroup& group, WeightRole product, const ProductInput& in, MatrixView out,
                           bool accumulate) {
  backend_.linear(group.product(product), in, out, accumulate);
}

void Transformer::norm(const PackedGroup& group, WeightRole role, MatrixView x, MatrixView out) {
  if (spec_.norm == NormKind::kRms) return backend_.rms_norm(x, group.vector(role), eps_, out);
  graph().layer_norm(x, group.vector(role), group.bias(role), eps_, out);
}

MatrixView Transformer::forward(const ModelInput& input, KvStorage& kv) {
  QUIRE_CHECK(spec_.has_head, "an encoder has no logits");
  const MatrixView hidden = logit_rows(input, kv);
  const MatrixView logits = room(kLogits, hidden.rows, spec_.config.vocab_size);
  if (hidden.rows > 0) {
    if (spec_.norm == NormKind::kRms && spec_.final_norm != WeightRole::kNoRole) {
      multiply(weights_.model, WeightRole::kHead, normed(hidden, weights_.model.vector(spec_.final_norm), eps_), logits,
               false);
    } else {
      norm(weights_.model, spec_.final_norm, hidden, hidden);
      multiply(weights_.model, WeightRole::kHead, hidden, logits, false);
    }
    if (spec_.logit_scale != 1.0) graph().scale(logits, static_cast<float>(spec_.logit_scale));
    if (spec_.logit_softcap != 0.0) graph().softcap(logits, static_cast<float>(spec_.logit_softcap));
  }
  backend_.synchronize();
  return logits;
}

MatrixView Transformer::forward_hidden(const ModelInput& input, KvStorage& kv) {
  const MatrixView hidden = logit_rows(input, kv);
  if (hidden.rows > 0 && spec_.final_norm != WeightRole::kNoRole)
    norm(weights_.model, spec_.final_norm, hidden, hidden);
  backend_.synchronize();
  return hidden;
}

MatrixView Transformer::forward_labels(const ModelInput& input, KvStorage& kv) {
  QUIRE_CHECK(spec_.num_labels > 0, "the model has no classifier");
  MatrixView hidden = forward_hidden(input, kv);
  const MatrixView labels = room(kLogits, hidden.rows, spec_.num_labels);
  if (hidden.rows == 0) return labels;
  if (spec_.has_classifier_dense) {
    const MatrixView dense = room(kX, hidden.rows, hidden.cols);
    multiply(weights_.model, WeightRole::kClassifier, hidden, dense, false);
    graph().activate({.kind = Nonlinearity::kTanh}, dense, {}, dense);
    hidden = dense;
  }
  multiply(weights_.model, WeightRole::kClassifierOutput, hidden, labels, false);
  backend_.synchronize();
  return labels;
}

MatrixView Transformer::logit_rows(const ModelInput& input, KvStorage& kv) {
  const auto num_rows = std::ssize(input.token_ids);
  QUIRE_CHECK(std::ssize(input.positions) == num_rows && std::ssize(input.attention.slots) == num_rows,
              "a step's arrays have one element for each row");
  const MatrixView hidden = room(kHidden, std::ssize(input.logit_rows), spec_.config.hidden_size);
  for (std::int64_t begin = 0; begin < num_rows;) {
    Slice slice = cut(input, begin, slice_end(input, begin));
    slice.kv = &kv;
    compute_rotations(slice);
    const MatrixView x = room(kX, slice.end - slice.begin, spec_.config.hidden_size);
    embed(input, slice, x);
    for (std::int64_t layer = 0; layer < spec_.config.num_layers; ++layer)
      compute_layer({spec_.layers[at(layer)], weights_.layers[at(layer)], layer, slice}, x);
    collect_logit_rows(input, slice, x, hidden);
    begin = slice.end;
  }
  return hidden;
}

std::int64_t Transformer::slice_end(const ModelInput& input, std::int64_t begin) const {
  const std::int64_t end = std::min<std::int64_t>(begin + kMaxRows, std::ssize(input.token_ids));
  if (spec_.is_causal) return end;
  // The last sequence that ends within the slice, or the one that begins it.
  std::int64_t last = begin;
  for (const std::int32_t start : input.attention.query_start) {
    if (start > begin && (start <= end || last == begin)) last = start;
  }
  return last;
}

// A slice is what a smaller token budget would have made a step of its own: its last sequence may be cut short.
Transformer::Slice Transformer::cut(const ModelInput& input, std::int64_t begin, std::int64_t end) {
  const AttentionBatch& whole = input.attention;
  const auto num_sequences = std::ssize(whole.context_len);
  std::int64_t first = 0;
  while (whole.query_start[at(first + 1)] <= begin)
    ++first;
  slice_query_start_.assign(1, 0);
  slice_context_len_.clear();
  std::int64_t sequence = first;
  for (; sequence < num_sequences && whole.query_start[at(sequence)] < end; ++sequence) {
    const std::int64_t last = std::min<std::int64_t>(whole.query_start[at(sequence + 1)], end);
    const std::int64_t rows_after = whole.query_start[at(sequence + 1)] - last;
    slice_query_start_.push_back(static_cast<std::int32_t>(last - begin));
    slice_context_len_.push_back(static_cast<std::int32_t>(whole.context_len[at(sequence)] - rows_after));
  }
  Slice slice;
  slice.begin = begin;
  slice.end = end;
  slice.attention = {.query_start = slice_query_start_,
                     .context_len = slice_context_len_,
                     .block_table_start = whole.block_table_start.subspan(at(first), at(sequence - first + 1)),
                     .block_tables = whole.block_tables,
                     .slots = whole.slots.subspan(at(begin), at(end - begin))};
  slice.positions = input.positions.subspan(at(begin), at(end - begin));
  slice.states = input.states;
  if (!whole.state_ids.empty())
    slice.attention.state_ids = whole.state_ids.subspan(at(first), at(sequence - first));
  return slice;
}

void Transformer::compute_rotations(const Slice& slice) {
  const std::int64_t rows = slice.end - slice.begin;
  MatrixView cos = room(kCos, rows, widths_[kCos]);
  MatrixView sin = room(kSin, rows, widths_[kSin]);
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    const RopeFrequencies& rope = ropes_[i];
    const auto half = std::ssize(rope.inv_freq);
    // One behind the other, each dense.
    rotations_[i] = {{cos.data, rows, half, half}, {sin.data, rows, half, half}};
    cos.data += rows * half;
    sin.data += rows * half;
    backend_.rope_angles(slice.positions, rope.inv_freq, rope.scale, rotations_[i].cos, rotations_[i].sin);
  }
}

void Transformer::embed(const ModelInput& input, Slice& slice, MatrixView x) {
  const PackedGroup& model = weights_.model;
  const auto rows_of = [&](WeightRole role) -> const Embedding& { return *model.rows[static_cast<std::size_t>(role)]; };
  const auto ids = input.token_ids.subspan(at(slice.begin), at(x.rows));
  backend_.embed(rows_of(WeightRole::kTokenEmbedding), ids, x);
  if (spec_.embedding_scale != 1.0) graph().scale(x, static_cast<float>(spec_.embedding_scale));
  if (spec_.num_token_types > 0) {
    // Every token is of the first type: one row for all.
    const MatrixView row{const_cast<float*>(model.vector(WeightRole::kTokenTypes)), x.rows, x.cols, 0};
    graph().add(row, 1.0F, x);
  }
  if (spec_.has_positions) {
    const MatrixView positions = room(kBranch, x.rows, x.cols);
    backend_.embed(rows_of(WeightRole::kPositions), slice.positions, positions);
    graph().add(positions, 1.0F, x);
  }
  if (spec_.embedding_norm != WeightRole::kNoRole) norm(model, spec_.embedding_norm, x, x);
  if (spec_.per_layer_size > 0) embed_per_layer(ids, slice, x);
}

// Each layer's own embedding of the token, and a projection of the common one, summed.
void Transformer::embed_per_layer(std::span<const std::int32_t> ids, Slice& slice, MatrixView x) {
  const std::int64_t size = spec_.per_layer_size;
  const std::int64_t width = size * spec_.config.num_layers;
  const PackedGroup& model = weights_.model;
  const MatrixView both = room(kPerLayer, x.rows, 2 * width);
  const MatrixView own = columns(both, 0, width);
  const MatrixView projected = columns(both, width, width);
  backend_.embed(*model.rows[static_cast<std::size_t>(WeightRole::kPerLayerEmbedding)], ids, own);
  graph().scale(own, std::sqrt(static_cast<float>(size)));
  multiply(model, WeightRole::kPerLayerProjection, x, projected, false);
  graph().scale(projected, 1.0F / std::sqrt(static_cast<float>(spec_.config.hidden_size)));
  backend_.head_rms_norm(projected, spec_.config.num_layers, size, model.vector(WeightRole::kPerLayerNorm), eps_);
  graph().add(projected, 1.0F, own);
  graph().scale(own, 1.0F / std::sqrt(2.0F));
  slice.per_layer = own;
}

void Transformer::collect_logit_rows(const ModelInput& input, const Slice& slice, MatrixView x, MatrixView out) {
  const auto first = std::ranges::lower_bound(input.logit_rows, slice.begin);
  slice_logit_rows_.clear();
  for (auto row = first; row != input.logit_rows.end() && *row < slice.end; ++row) {
    slice_logit_rows_.push_back(static_cast<std::int32_t>(*row - slice.begin));
  }
  if (slice_logit_rows_.empty()) return;
  const auto num_rows = std::ssize(slice_logit_rows_);
  backend_.gather_rows(x, slice_logit_rows_, row_range(out, first - input.logit_rows.begin(), num_rows));
}

}  // namespace quire
