#include "core/model/layers/transformer.h"

#include <algorithm>
#include <utility>

#include "core/base/result.h"
#include "core/model/layers/adapters/read_adapter.h"
#include "core/model/parts/model/head.h"
#include "core/model/parts/model/layer_branches.h"
#include "core/model/parts/model/layer_embeddings.h"
#include "core/model/parts/model/next_tokens.h"
#include "core/model/parts/model/residual_streams.h"
#include "core/model/parts/model/token_embedding.h"
#include "core/model/parts/parts.h"
#include "core/model/parts/views.h"
#include "kernels/check.h"
#include "kernels/parallel/rank_sum.h"

namespace quire {

namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

Widths widths_of(const ModelSpec& spec) {
  Widths widths;
  for (const ModelPart* part : model_parts())
    part->fit(spec, widths);
  return widths;
}

// Most experts chosen for a row in any layer.
std::int64_t most_chosen(const ModelSpec& spec) {
  std::int64_t most = 0;
  for (const LayerSpec& layer : spec.layers)
    most = std::max(most, layer.feed_forward.route.num_chosen);
  return most;
}

// Calls visit(embedded, rows of x) for each run of rows with embeddings in the slice.
template <class Visit>
void visit_embedded(const StepArrays& arrays, const Slice& slice, MatrixView x, Visit&& visit) {
  for (const EmbeddedRows& run : arrays.embedded) {
    const std::int64_t begin = std::max(run.first_row, slice.begin);
    const std::int64_t end = std::min(run.first_row + run.rows.rows, slice.end);
    if (begin < end)
      visit(row_range(run.rows, begin - run.first_row, end - begin), row_range(x, begin - slice.begin, end - begin));
  }
}

}  // namespace

// --- memory ----------------------------------------------------------------------------------------------------------

Transformer::Transformer(const ModelSpec& spec, PackedModel weights, Backend& backend,
                         std::shared_ptr<const void> sources_owner, std::int64_t first_kv_layer, RankSum* rank_sum)
    : spec_(spec),
      weights_(std::move(weights)),
      backend_(backend),
      sources_owner_(std::move(sources_owner)),
      work_(spec_, backend, widths_of(spec), first_kv_layer, rank_sum),
      model_(work_, weights_.model),
      slices_(spec.is_causal) {
  for (const RopeConfig& rope : spec_.ropes)
    ropes_.push_back(rope_frequencies(rope));
}

void Transformer::reserve(std::int64_t max_rows, std::int64_t max_logit_rows) {
  const std::int64_t slice_rows = StepSlices::most_rows(spec_, max_rows);
  for (std::size_t i = 0; i < kNumActivations; ++i) {
    const auto which = static_cast<ActivationName>(i);
    work_.activations.reserve(which, which < kHeadInput ? slice_rows : which == kHidden ? max_rows : max_logit_rows);
  }
  if (work_.rank_sum != nullptr) work_.rank_sum->reserve(slice_rows, spec_.config.hidden_size);
  slices_.reserve(slice_rows, max_logit_rows);
  work_.row_factors.reserve(at(slice_rows));
  if (work_.activations.widths()[kExpertLowRank] > 0) {
    work_.expert_changes.reserve(at(slice_rows));
    work_.row_changes.reserve(at(slice_rows * most_chosen(spec_)));
  }
  work_.listed_ids.reserve(at(spec_.per_layer_size > 0 ? slice_rows : 0));
}

void Transformer::allow_adapters(std::int64_t max_rank) {
  require_adapters(backend_);
  work_.activations.set_width(kLowRank, max_rank);
  work_.activations.set_width(kHeadLowRank, max_rank);
  work_.activations.set_width(kExpertLowRank, most_chosen(spec_) * max_rank);
}

std::shared_ptr<const Adapter> Transformer::load_adapter(const std::filesystem::path& path) const {
  const std::int64_t max_rank = work_.activations.widths()[kLowRank];
  if (max_rank == 0) throw StartupError(path.string() + ": adapters were not allowed for");
  return read_adapter(path, spec_, backend_, max_rank);
}

std::size_t Transformer::activation_bytes(const ModelSpec& spec, std::int64_t num_rows, std::int64_t num_logit_rows) {
  const Widths each = widths_of(spec);
  std::int64_t per_row = 0;
  std::int64_t per_logit_row = 0;
  for (std::size_t i = 0; i < kNumActivations; ++i) {
    const auto which = static_cast<ActivationName>(i);
    (which < kHeadInput ? per_row : per_logit_row) += each[which];
  }
  per_logit_row -= each[kHidden];
  const std::int64_t slice_rows = StepSlices::most_rows(spec, num_rows);
  return static_cast<std::size_t>(slice_rows * per_row + num_rows * each[kHidden] + num_logit_rows * per_logit_row) *
         sizeof(float);
}

StepBounds Transformer::step_bounds(const ModelSpec& spec, StepBounds step) {
  const Widths each = widths_of(spec);
  step.slice_rows = StepSlices::most_rows(spec, step.rows);
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

std::size_t Transformer::share_bytes(const ModelSpec& spec, std::int64_t num_rows, int num_ranks) {
  const std::int64_t rows = StepSlices::most_rows(spec, num_rows);
  return static_cast<std::size_t>((num_ranks + 1) * rows * spec.config.hidden_size) * sizeof(float);
}

// --- a pass ----------------------------------------------------------------------------------------------------------

ModelOutput Transformer::forward(const StepArrays& arrays, KvStorage& kv) {
  const std::int64_t num_rows = arrays.num_rows();
  QUIRE_CHECK(std::ssize(arrays.positions) == num_rows * arrays.positions_per_row &&
                  std::ssize(arrays.attention.slots) == num_rows,
              "a step's arrays have one element for each row");
  MatrixView head_input = room(kHeadInput, std::ssize(arrays.logit_rows));
  MatrixView hidden = room(kHidden, std::ssize(arrays.hidden_rows));
  MatrixView label_input = arrays.label_rows.empty() ? MatrixView{} : room(kLabelInput, std::ssize(arrays.label_rows));
  head_input.rows = hidden.rows = label_input.rows = 0;
  ModelOutput out;
  while (out.num_rows < num_rows) {
    Slice slice = slices_.next(arrays, out.num_rows);
    slice.kv = &kv;
    compute_rotations(slice);
    const MatrixView embedded = room(kX, slice.end - slice.begin);
    embed(arrays, slice, embedded);
    const std::optional<MatrixView> x = compute_layers(arrays, slice, embedded);
    out.cut_slice = !x;
    if (out.cut_slice) break;
    head_input.rows = collect(arrays.logit_rows, slice, *x, head_input);
    hidden.rows = collect(arrays.hidden_rows, slice, *x, hidden);
    label_input.rows = spec_.scores_mean ? collect_means(arrays.label_rows, slice, *x, label_input)
                                         : collect(arrays.label_rows, slice, *x, label_input);
    out.num_rows = slice.end;
    if (is_interrupted(arrays)) break;
  }
  last_head_input_ = head_input;
  out.logits = Head::logits(model_, head_input, arrays.vocabulary, slices_.adapters_of_logits(arrays));
  Head::embed(model_, hidden);
  out.hidden = hidden;
  if (label_input.rows > 0) out.labels = Head::labels(model_, label_input);
  return out;
}

bool Transformer::is_interrupted(const StepArrays& arrays) const {
  if (arrays.interrupt == nullptr) return false;
  const bool is_set = arrays.interrupt->load(std::memory_order_relaxed);
  return work_.rank_sum == nullptr ? is_set : work_.rank_sum->agree(is_set);
}

void Transformer::compute_rotations(const Slice& slice) {
  const std::int64_t rows = slice.end - slice.begin;
  MatrixView cos = work_.room(kCos, rows, work_.activations.widths()[kCos]);
  MatrixView sin = work_.room(kSin, rows, work_.activations.widths()[kSin]);
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
  const auto ids = arrays.token_ids.subspan(at(slice.begin), at(x.rows));
  TokenEmbedding::look_up(model_, ids, x);
  visit_embedded(arrays, slice, x,
                 [&](MatrixView rows, MatrixView to) { work_.graph().copy(columns(rows, 0, x.cols), to); });
  const auto types =
      arrays.token_types.empty() ? arrays.token_types : arrays.token_types.subspan(at(slice.begin), at(x.rows));
  TokenEmbedding::complete(model_, slice.positions, types, x);
  if (spec_.per_layer_size > 0) slice.per_layer = LayerEmbeddings::run(model_, ids, x);
  if (spec_.num_streams > 1) slice.streams = ResidualStreams::split(model_, x);
}

std::optional<MatrixView> Transformer::compute_layers(const StepArrays& arrays, Slice& slice, MatrixView x) {
  const std::int64_t last = spec_.config.num_layers - 1;
  for (std::int64_t index = 0; index <= last; ++index) {
    if (arrays.cuts_slices && is_interrupted(arrays)) return std::nullopt;
    const LayerRun layer = layer_run(index, slice);
    if (index == last && LayerBranches::can_narrow(spec_) && !has_level(arrays, last + 1))
      return compute_last_layer(arrays, slice, layer, x);
    LayerBranches::run(layer, x);
    add_level(arrays, slice, index + 1, x);
  }
  if (spec_.next_tokens) {
    Slice own = slice;
    own.adapters = {};
    NextTokens::store(model_, layer_run(last + 1, own), arrays.token_ids.subspan(at(slice.begin), at(x.rows)), x);
  }
  if (spec_.num_streams > 1) ResidualStreams::merge(model_, slice.streams, x);
  return x;
}

// The last feed-forward computes only the wanted rows.
MatrixView Transformer::compute_last_layer(const StepArrays& arrays, Slice& slice, const LayerRun& layer,
                                           MatrixView x) {
  LayerBranches::add_mixer(layer, x);
  MatrixView kept = x;
  if (slices_.keep_wanted(arrays, slice)) {
    // Reuses the memory of the mixer's attended rows, which are no longer needed.
    kept = room(kAttended, std::ssize(*slice.kept));
    if (kept.rows > 0) backend_.gather_rows(x, *slice.kept, kept);
  }
  if (kept.rows == 0) return kept;
  LayerBranches::add_feed_forward(layer, kept);
  LayerEmbeddings::finish(layer, kept);
  return kept;
}

bool Transformer::has_level(const StepArrays& arrays, std::int64_t level) const {
  const std::int64_t width = spec_.config.hidden_size;
  return std::ranges::any_of(arrays.embedded,
                             [&](const EmbeddedRows& run) { return (level + 1) * width <= run.rows.cols; });
}

void Transformer::add_level(const StepArrays& arrays, const Slice& slice, std::int64_t level, MatrixView x) {
  visit_embedded(arrays, slice, x, [&](MatrixView rows, MatrixView to) {
    if ((level + 1) * x.cols <= rows.cols) work_.graph().add(columns(rows, level * x.cols, x.cols), 1.0F, to);
  });
}

std::int64_t Transformer::collect(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x,
                                  MatrixView out) {
  const std::span<const std::int32_t> rows = slices_.wanted_of(wanted, slice);
  const std::int64_t first = num_before(wanted, slice.begin);
  if (!rows.empty()) backend_.gather_rows(x, rows, row_range(out, first, std::ssize(rows)));
  return first + std::ssize(rows);
}

std::int64_t Transformer::collect_means(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x,
                                        MatrixView out) {
  const auto& start = slice.attention.query_start;
  std::int64_t place = num_before(wanted, slice.begin);
  for (const std::int32_t row : slices_.wanted_of(wanted, slice)) {
    const auto after = std::ranges::upper_bound(start, row);
    const std::int64_t begin = *(after - 1);
    Head::average(model_, row_range(x, begin, *after - begin), row_range(out, place++, 1));
  }
  return place;
}

// --- drafts ----------------------------------------------------------------------------------------------------------

MatrixView Transformer::draft(const DraftArrays& arrays, KvStorage& kv) {
  QUIRE_CHECK(spec_.next_tokens.has_value(), "the model has no block that predicts further tokens");
  const std::int64_t rows = arrays.num_rows();
  const MatrixView hidden = room(kNextHidden, rows);
  if (arrays.is_first) {
    backend_.gather_rows(last_head_input_, arrays.hidden_rows, hidden);
    Head::norm(model_, hidden);
  } else {
    backend_.gather_rows(last_drafted_, arrays.hidden_rows, hidden);
  }
  Slice slice;
  slice.end = rows;
  slice.attention = arrays.attention;
  slice.positions = arrays.positions;
  slice.kv = &kv;
  compute_rotations(slice);
  last_drafted_ = NextTokens::run(model_, layer_run(spec_.config.num_layers, slice), arrays.token_ids, hidden);
  const MatrixView logits = work_.room(kLogits, rows, spec_.config.vocab_size);
  Head::multiply(model_, arrays.vocabulary, last_drafted_, logits);
  return logits;
}

}  // namespace quire
