#include "core/model/layers/transformer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/model/parts/views.h"
#include "kernels/check.h"
#include "kernels/parallel/rank_sum.h"

namespace quire {

namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// Whether the row before `row` sees the token of `row` in the same sequence.
bool sees_past(const AttentionBatch& batch, std::int64_t row) {
  const auto next = std::ranges::upper_bound(batch.query_start, static_cast<std::int32_t>(row - 1));
  const auto sequence = at(next - batch.query_start.begin() - 1);
  const std::int64_t position = batch.context_len[sequence] - (*next - row);
  return row < *next && batch.seen_end[at(row - 1)] > position;
}

}  // namespace

Transformer::Transformer(const ModelSpec& spec, PackedModel weights, Backend& backend,
                         std::shared_ptr<const void> sources_owner, std::int64_t first_kv_layer, RankSum* rank_sum)
    : spec_(spec),
      weights_(std::move(weights)),
      backend_(backend),
      sources_owner_(std::move(sources_owner)),
      work_(spec_, backend, widths(spec), first_kv_layer, rank_sum) {
  for (const RopeConfig& rope : spec_.ropes)
    ropes_.push_back(rope_frequencies(rope));
  if (!spec.next_tokens) return;
  std::vector<float> taps(at(2 * spec.config.hidden_size), 0.0F);
  std::fill_n(taps.begin(), spec.config.hidden_size, 1.0F);
  shift_ = backend.upload(taps);
}

void Transformer::reserve(std::int64_t max_rows, std::int64_t max_logit_rows) {
  const std::int64_t slice_rows = most_slice_rows(spec_, max_rows);
  for (std::size_t i = 0; i < kNumActivations; ++i) {
    const auto which = static_cast<ActivationName>(i);
    work_.activations.reserve(which, which < kHeadInput ? slice_rows : which == kHidden ? max_rows : max_logit_rows);
  }
  if (work_.rank_sum != nullptr) work_.rank_sum->reserve(slice_rows, spec_.config.hidden_size);
  const auto most = at(slice_rows);
  slice_query_start_.reserve(most + 1);
  slice_context_len_.reserve(most);
  slice_wanted_.reserve(most);
  slice_kept_.reserve(3 * most);  // up to three kinds of wanted rows
  slice_adapters_.reserve(most);
  work_.row_factors.reserve(most);
  if (const auto chosen = at(work_.activations.widths()[kExpertLowRank] > 0 ? most_chosen() : 0); chosen > 0) {
    work_.expert_changes.reserve(most);
    work_.row_changes.reserve(most * chosen);
  }
  listed_ids_.reserve(spec_.per_layer_size > 0 ? most : 0);
}

void Transformer::multiply_head(std::span<const OutputRange> vocabulary, const ProductInput& in, MatrixView out) {
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  const Linear& head = weights_.model.product(WeightRole::kHead);
  // A rank has only a part of the outputs, numbered from 0.
  if (vocabulary.empty() || work_.rank_sum != nullptr) return backend_.linear(head, in, out, false);
  backend_.linear_some(head, in, vocabulary, kImpossible, out);
}

bool Transformer::is_interrupted(const StepArrays& arrays) const {
  if (arrays.interrupt == nullptr) return false;
  const bool is_set = arrays.interrupt->load(std::memory_order_relaxed);
  return work_.rank_sum == nullptr ? is_set : work_.rank_sum->agree(is_set);
}

ModelOutput Transformer::forward(const StepArrays& arrays, KvStorage& kv) {
  const std::int64_t num_rows = arrays.num_rows();
  QUIRE_CHECK(std::ssize(arrays.positions) == num_rows * arrays.positions_per_row &&
                  std::ssize(arrays.attention.slots) == num_rows,
              "a step's arrays have one element for each row");
  const std::int64_t width = spec_.config.hidden_size;
  MatrixView head_input = room(kHeadInput, std::ssize(arrays.logit_rows), width);
  MatrixView hidden = room(kHidden, std::ssize(arrays.hidden_rows), width);
  MatrixView label_input =
      arrays.label_rows.empty() ? MatrixView{} : room(kLabelInput, std::ssize(arrays.label_rows), width);
  head_input.rows = hidden.rows = label_input.rows = 0;
  std::int64_t begin = 0;
  bool is_cut = false;
  while (begin < num_rows) {
    Slice slice = cut(arrays, begin, slice_end(arrays, begin));
    slice.kv = &kv;
    compute_rotations(slice);
    const MatrixView embedded = room(kX, slice.end - slice.begin, width);
    embed(arrays, slice, embedded);
    if (spec_.num_streams > 1) split_streams(slice, embedded);
    const std::optional<MatrixView> computed = compute_layers(arrays, slice, embedded);
    is_cut = !computed;
    if (is_cut) break;
    const MatrixView x = *computed;
    if (spec_.next_tokens) store_next(arrays, slice, x);
    if (slice.streams.data != nullptr) merge_streams(slice, x);
    head_input.rows = collect(arrays.logit_rows, slice, x, head_input);
    hidden.rows = collect(arrays.hidden_rows, slice, x, hidden);
    if (spec_.scores_mean && label_input.data != nullptr) average_sequences(arrays.label_rows, slice, x, label_input);
    label_input.rows = spec_.scores_mean ? num_before(arrays.label_rows, slice.end)
                                         : collect(arrays.label_rows, slice, x, label_input);
    begin = slice.end;
    if (is_interrupted(arrays)) break;
  }
  last_head_input_ = head_input;
  ModelOutput out{.num_rows = begin,
                  .cut_slice = is_cut,
                  .logits = compute_logits(arrays, head_input),
                  .hidden = hidden,
                  .labels = {}};
  if (hidden.rows > 0 && spec_.final_norm != WeightRole::kNoRole) norm_model(spec_.final_norm, hidden, hidden);
  if (!spec_.dense_sizes.empty()) apply_dense(hidden);
  if (label_input.rows > 0) out.labels = compute_labels(label_input);
  return out;
}

std::optional<MatrixView> Transformer::compute_layers(const StepArrays& arrays, Slice& slice, MatrixView x) {
  const std::int64_t last = spec_.config.num_layers - 1;
  for (std::int64_t index = 0; index <= last; ++index) {
    if (arrays.cuts_slices && is_interrupted(arrays)) return std::nullopt;
    const LayerRun layer(work_, spec_.layers[at(index)], weights_.layers[at(index)], index, slice);
    if (index == last && narrows_last_layer() && !has_level(arrays, last + 1))
      return compute_last_layer(arrays, slice, layer, x);
    compute_layer(layer, x);
    add_level(arrays, slice, index + 1, x);
  }
  return x;
}

bool Transformer::has_level(const StepArrays& arrays, std::int64_t level) const {
  const std::int64_t width = spec_.config.hidden_size;
  return std::ranges::any_of(arrays.embedded,
                             [&](const EmbeddedRows& run) { return (level + 1) * width <= run.rows.cols; });
}

// Levels of embeddings after the first are added to the first layers' outputs.
void Transformer::add_level(const StepArrays& arrays, const Slice& slice, std::int64_t level, MatrixView x) {
  visit_embedded(arrays, slice, x, [&](MatrixView rows, MatrixView to) {
    if ((level + 1) * x.cols <= rows.cols) graph().add(columns(rows, level * x.cols, x.cols), 1.0F, to);
  });
}

// Calls visit(embedded, rows of x) for each run of rows with embeddings in the slice.
template <class Visit>
void Transformer::visit_embedded(const StepArrays& arrays, const Slice& slice, MatrixView x, Visit&& visit) {
  for (const EmbeddedRows& run : arrays.embedded) {
    const std::int64_t begin = std::max(run.first_row, slice.begin);
    const std::int64_t end = std::min(run.first_row + run.rows.rows, slice.end);
    if (begin < end)
      visit(row_range(run.rows, begin - run.first_row, end - begin), row_range(x, begin - slice.begin, end - begin));
  }
}

MatrixView Transformer::compute_logits(const StepArrays& arrays, MatrixView input) {
  const MatrixView logits = room(kLogits, input.rows, spec_.has_head ? spec_.config.vocab_size : 0);
  if (input.rows == 0) return logits;
  QUIRE_CHECK(spec_.has_head, "an encoder has no logits");
  const PackedGroup& model = weights_.model;
  const bool norms_on_the_way = spec_.norm == NormKind::kRms;
  if (!norms_on_the_way) norm_model(spec_.final_norm, input, input);
  const ProductInput in =
      norms_on_the_way ? normed(input, model.vector(spec_.final_norm), work_.eps) : ProductInput(input);
  const MatrixView own = columns(logits, 0, model.product(WeightRole::kHead).out_features());
  multiply_head(arrays.vocabulary, in, own);
  if (!arrays.adapters.empty()) add_to_logits(arrays, in, own);
  if (spec_.logit_scale != 1.0) graph().scale(own, static_cast<float>(spec_.logit_scale));
  if (spec_.logit_softcap != 0.0) graph().softcap(own, static_cast<float>(spec_.logit_softcap));
  if (work_.rank_sum != nullptr) work_.rank_sum->gather(own, logits);
  return logits;
}

// Products are linear, so rows may be pooled after them as well as before.
void Transformer::apply_dense(MatrixView hidden) {
  const std::int64_t most = work_.activations.capacity(kDense);
  for (std::int64_t begin = 0; begin < hidden.rows; begin += most) {
    const MatrixView part = row_range(hidden, begin, std::min(most, hidden.rows - begin));
    const MatrixView made = room(kDense, part.rows, spec_.dense_sizes.front());
    work_.multiply(weights_.model, WeightRole::kDense2, part, made, false);
    if (spec_.dense_sizes.size() == 1) {
      graph().copy(made, part);
    } else {
      work_.multiply(weights_.model, WeightRole::kDense3, made, part, false);
    }
  }
}

MatrixView Transformer::compute_labels(MatrixView input) {
  QUIRE_CHECK(spec_.num_labels > 0, "the model has no classifier");
  const PackedGroup& model = weights_.model;
  const MatrixView labels = room(kLabels, input.rows, spec_.num_labels);
  if (spec_.final_norm != WeightRole::kNoRole && !spec_.scores_mean) norm_model(spec_.final_norm, input, input);
  if (!spec_.has_classifier_dense) {
    work_.multiply(model, WeightRole::kClassifierOutput, input, labels, false);
    return labels;
  }
  const MatrixView dense = room(kLabelDense, input.rows, input.cols);
  work_.multiply(model, WeightRole::kClassifier, input, dense, false);
  graph().activate({.kind = spec_.classifier_activation}, dense, {}, dense);
  if (spec_.has_classifier_norm) norm_model(WeightRole::kClassifierNorm, dense, dense);
  work_.multiply(model, WeightRole::kClassifierOutput, dense, labels, false);
  return labels;
}

// The mean over each wanted row's sequence, after the last norm. Sequences that attend in both directions are whole.
void Transformer::average_sequences(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x,
                                    MatrixView out) {
  const MatrixView last = room(kBranch, x.rows, x.cols);
  if (spec_.final_norm == WeightRole::kNoRole) {
    graph().copy(x, last);
  } else {
    norm_model(spec_.final_norm, x, last);
  }
  const auto& start = slice.attention.query_start;
  const std::int64_t end = num_before(wanted, slice.end);
  for (std::int64_t i = num_before(wanted, slice.begin); i < end; ++i) {
    const auto after = std::ranges::upper_bound(start, static_cast<std::int32_t>(wanted[at(i)] - slice.begin));
    const std::int64_t begin = *(after - 1);
    const std::int64_t count = *after - begin;
    const MatrixView mean = row_range(out, i, 1);
    graph().copy(row_range(last, begin, 1), mean);
    for (std::int64_t row = begin + 1; row < begin + count; ++row)
      graph().add(row_range(last, row, 1), 1.0F, mean);
    graph().scale(mean, 1.0F / static_cast<float>(count));
  }
}

std::int64_t Transformer::slice_end(const StepArrays& arrays, std::int64_t begin) const {
  if (spec_.is_causal) {
    const std::int64_t most = arrays.slice_rows > 0 ? std::min(arrays.slice_rows, kMaxRows) : kMaxRows;
    return whole_spans(arrays, begin, std::min(begin + most, arrays.num_rows()));
  }
  // The last sequence that ends within the usual slice, or the one that begins the slice.
  std::int64_t last = begin;
  for (const std::int32_t start : arrays.attention.query_start) {
    if (start > begin && (start <= begin + kMaxRows || last == begin)) last = start;
  }
  return last;
}

// Rows that see later ones are computed together with them: the last end of rows in (begin, most] that no row sees
// beyond, else the first after it.
std::int64_t Transformer::whole_spans(const StepArrays& arrays, std::int64_t begin, std::int64_t most) const {
  const std::span<const std::int32_t> seen_end = arrays.attention.seen_end;
  if (seen_end.empty()) return most;
  const auto is_end = [&](std::int64_t end) { return end == arrays.num_rows() || !sees_past(arrays.attention, end); };
  for (std::int64_t end = most; end > begin; --end) {
    if (is_end(end)) return end;
  }
  std::int64_t end = most;
  while (!is_end(end))
    ++end;
  QUIRE_CHECK(end - begin <= kMaxRows, "no more rows than fit a slice attend in both directions");
  return end;
}

// A slice equals the step that a smaller token budget would have made: its last sequence may be cut short.
Slice Transformer::cut(const StepArrays& arrays, std::int64_t begin, std::int64_t end) {
  const AttentionBatch& whole = arrays.attention;
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
                     .slots = whole.slots.subspan(at(begin), at(end - begin)),
                     .causal = spec_.is_causal};
  if (!whole.seen_end.empty()) slice.attention.seen_end = whole.seen_end.subspan(at(begin), at(end - begin));
  if (arrays.window_storage != nullptr) {
    slice.window = slice.attention;
    slice.window.block_table_start = arrays.window.block_table_start.subspan(at(first), at(sequence - first + 1));
    slice.window.block_tables = arrays.window.block_tables;
    slice.window.slots = arrays.window.slots.subspan(at(begin), at(end - begin));
    slice.window_kv = arrays.window_storage;
  }
  const std::int64_t parts = arrays.positions_per_row;
  slice.positions = arrays.positions.subspan(at(begin * parts), at((end - begin) * parts));
  slice.positions_per_row = parts;
  slice.states = arrays.state_storage;
  slice.adapters = adapter_runs(arrays, first, sequence);
  if (!arrays.states.empty()) slice.attention.state_ids = arrays.states.subspan(at(first), at(sequence - first));
  return slice;
}

void Transformer::compute_rotations(const Slice& slice) {
  const std::int64_t rows = slice.end - slice.begin;
  MatrixView cos = room(kCos, rows, work_.activations.widths()[kCos]);
  MatrixView sin = room(kSin, rows, work_.activations.widths()[kSin]);
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    const RopeFrequencies& rope = ropes_[i];
    const auto half = std::ssize(rope.inv_freq);
    // Cosines and sines lie one after another, each dense.
    work_.rotations[i] = {{cos.data, rows, half, half}, {sin.data, rows, half, half}};
    if (half == 0) continue;
    cos.data += rows * half;
    sin.data += rows * half;
    const RopePositions positions(slice.positions, slice.positions_per_row, spec_.ropes[i].axes);
    backend_.rope_angles(positions, rope.inv_freq, rope.scale, work_.rotations[i].cos, work_.rotations[i].sin);
  }
}

void Transformer::embed(const StepArrays& arrays, Slice& slice, MatrixView x) {
  const PackedGroup& model = weights_.model;
  const auto rows_of = [&](WeightRole role) -> const Embedding& { return *model.rows[static_cast<std::size_t>(role)]; };
  const auto ids = arrays.token_ids.subspan(at(slice.begin), at(x.rows));
  backend_.embed(rows_of(WeightRole::kTokenEmbedding), ids, x);
  const auto scale = [&] {
    if (spec_.embedding_scale != 1.0) graph().scale(x, static_cast<float>(spec_.embedding_scale));
  };
  if (!spec_.scales_media) scale();
  visit_embedded(arrays, slice, x, [&](MatrixView rows, MatrixView to) { graph().copy(columns(rows, 0, x.cols), to); });
  if (spec_.scales_media) scale();
  if (spec_.num_token_types > 0) add_token_types(arrays, slice, x);
  if (spec_.has_positions) {
    const MatrixView positions = room(kBranch, x.rows, x.cols);
    backend_.embed(rows_of(WeightRole::kPositions), slice.positions, positions);
    graph().add(positions, 1.0F, x);
  }
  if (spec_.embedding_norm != WeightRole::kNoRole) norm_model(spec_.embedding_norm, x, x);
  if (spec_.per_layer_size > 0) embed_per_layer(ids, slice, x);
}

// Adds runs of rows of a type. A model with a single type uses it for the second text of a pair too.
void Transformer::add_token_types(const StepArrays& arrays, const Slice& slice, MatrixView x) {
  const float* types = weights_.model.vector(WeightRole::kTokenTypes);
  const auto type_of = [&](std::int64_t row) {
    const std::int64_t type = arrays.token_types.empty() ? 0 : arrays.token_types[at(slice.begin + row)];
    return std::min(type, spec_.num_token_types - 1);
  };
  for (std::int64_t begin = 0, end = 0; begin < x.rows; begin = end) {
    const std::int64_t type = type_of(begin);
    for (end = begin + 1; end < x.rows && type_of(end) == type; ++end) {
    }
    const MatrixView row{const_cast<float*>(types + type * x.cols), end - begin, x.cols, 0};
    graph().add(row, 1.0F, row_range(x, begin, end - begin));
  }
}

// Sums each layer's own embedding of the token and a projection of the common embedding.
void Transformer::embed_per_layer(std::span<const std::int32_t> ids, Slice& slice, MatrixView x) {
  const std::int64_t size = spec_.per_layer_size;
  const std::int64_t width = size * spec_.config.num_layers;
  const PackedGroup& model = weights_.model;
  const MatrixView both = room(kPerLayer, x.rows, 2 * width);
  const MatrixView own = columns(both, 0, width);
  const MatrixView projected = columns(both, width, width);
  listed_ids_.assign(ids.begin(), ids.end());
  for (std::int32_t& id : listed_ids_)
    id = id < spec_.per_layer_rows ? id : 0;
  backend_.embed(*model.rows[static_cast<std::size_t>(WeightRole::kPerLayerEmbedding)], listed_ids_, own);
  graph().scale(own, std::sqrt(static_cast<float>(size)));
  work_.multiply(model, WeightRole::kPerLayerProjection, x, projected, false);
  graph().scale(projected, 1.0F / std::sqrt(static_cast<float>(spec_.config.hidden_size)));
  backend_.head_rms_norm(projected, spec_.config.num_layers, size, model.vector(WeightRole::kPerLayerNorm), work_.eps);
  graph().add(projected, 1.0F, own);
  graph().scale(own, 1.0F / std::sqrt(2.0F));
  slice.per_layer = own;
}

MatrixView Transformer::keep_wanted_rows(const StepArrays& arrays, Slice& slice, MatrixView x) {
  slice_kept_.clear();
  for (const auto wanted : {arrays.logit_rows, arrays.hidden_rows, arrays.label_rows}) {
    const std::int64_t end = num_before(wanted, slice.end);
    for (std::int64_t i = num_before(wanted, slice.begin); i < end; ++i)
      slice_kept_.push_back(static_cast<std::int32_t>(wanted[at(i)] - slice.begin));
  }
  std::ranges::sort(slice_kept_);
  const auto repeated = std::ranges::unique(slice_kept_);
  slice_kept_.erase(repeated.begin(), repeated.end());
  if (std::ssize(slice_kept_) == x.rows) return x;
  slice.kept = slice_kept_;
  slice.adapters = adapters_of_kept(slice_kept_);
  // Reuses the memory of the mixer's attended rows, which are no longer needed.
  const MatrixView kept = room(kAttended, std::ssize(slice_kept_), x.cols);
  if (kept.rows > 0) backend_.gather_rows(x, slice_kept_, kept);
  return kept;
}

std::int64_t Transformer::collect(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x,
                                  MatrixView out) {
  const std::int64_t first = num_before(wanted, slice.begin);
  const std::int64_t end = num_before(wanted, slice.end);
  slice_wanted_.clear();
  for (std::int64_t i = first; i < end; ++i) {
    const std::int64_t row = wanted[at(i)] - slice.begin;
    slice_wanted_.push_back(static_cast<std::int32_t>(slice.kept ? num_before(*slice.kept, row) : row));
  }
  if (end > first) backend_.gather_rows(x, slice_wanted_, row_range(out, first, end - first));
  return end;
}

}  // namespace quire
