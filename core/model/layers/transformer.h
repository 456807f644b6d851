// Transformer: a ModelSpec as a graph over a Backend: embeds a step's rows, runs each layer's parts (parts.h) between
// its norms, and computes the head. Engine thread only. Invariants: a step within the reserved size allocates nothing;
// a row's result depends only on its own sequence, so a long step is computed in slices of kMaxRows without changing a
// bit.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/model/layers/model.h"
#include "core/model/layers/packed_layers.h"
#include "core/model/parts/kv_groups.h"
#include "core/model/parts/layer_run.h"
#include "kernels/device_step_bytes.h"

namespace quire {

class RankSum;

class Transformer final : public Model {
 public:
  // Rows computed at once: many, so that matrices are read seldom; few, so that activations stay small. A sequence that
  // attends in both directions is computed whole.
  static constexpr std::int64_t kMaxRows = 512;
  static_assert(kMaxRows >= kMostRowsOfSpan, "rows that attend in both directions fit a slice");

  // `sources_owner` keeps the memory behind the embedding alive. first_kv_layer: the model's first layer in the KV
  // storage. rank_sum: the sum over ranks, if this is a part of a model; null: a whole model.
  Transformer(const ModelSpec& spec, PackedModel weights, Backend& backend, std::shared_ptr<const void> sources_owner,
              std::int64_t first_kv_layer = 0, RankSum* rank_sum = nullptr);

  void reserve(std::int64_t max_rows, std::int64_t max_logit_rows) override;
  void allow_adapters(std::int64_t max_rank) override;
  std::shared_ptr<const Adapter> load_adapter(const std::filesystem::path& path) const override;
  ModelOutput forward(const StepArrays& arrays, KvStorage& kv) override;
  MatrixView draft(const DraftArrays& arrays, KvStorage& kv) override;
  DraftsBy drafts_by() const override { return spec_.next_tokens ? DraftsBy::kNextTokens : DraftsBy::kNothing; }

  std::int64_t vocab_size() const override { return spec_.config.vocab_size; }
  std::int64_t hidden_size() const override { return spec_.config.hidden_size; }
  std::int64_t max_context() const override { return spec_.config.max_context; }
  std::int64_t positions_per_row() const override { return quire::positions_per_row(spec_); }
  bool is_causal() const override { return spec_.is_causal; }
  bool has_head() const override { return spec_.has_head; }
  std::int64_t num_labels() const override { return spec_.num_labels; }
  std::int64_t state_floats() const override { return quire::state_floats(spec_); }
  KvLayout kv_layout() const override { return kv_layout_of(spec_); }
  KvSplit kv_split() const override { return kv_split_of(spec_); }

  // Bytes of activations that steps of up to `num_rows` rows with `num_logit_rows` rows of logits need.
  static std::size_t activation_bytes(const ModelSpec& spec, std::int64_t num_rows, std::int64_t num_logit_rows);
  // The bounds of a step, completed by the model's shape.
  static StepBounds step_bounds(const ModelSpec& spec, StepBounds step);
  // Bytes for the ranks' partial sums.
  static std::size_t share_bytes(const ModelSpec& spec, std::int64_t num_rows, int num_ranks) {
    const std::int64_t rows = most_slice_rows(spec, num_rows);
    return static_cast<std::size_t>((num_ranks + 1) * rows * spec.config.hidden_size) * sizeof(float);
  }

 private:
  using enum ActivationName;

  // A sequence that attends in both directions is computed whole.
  static std::int64_t most_slice_rows(const ModelSpec& spec, std::int64_t num_rows) {
    return spec.is_causal ? std::min(num_rows, kMaxRows) : num_rows;
  }

  static Widths widths(const ModelSpec& spec);
  static void fit_model(const ModelSpec& spec, Widths& out);
  static bool is_plain(const ModelSpec& spec);

  std::int64_t slice_end(const StepArrays& arrays, std::int64_t begin) const;
  std::int64_t whole_spans(const StepArrays& arrays, std::int64_t begin, std::int64_t most) const;
  bool has_level(const StepArrays& arrays, std::int64_t level) const;
  void add_level(const StepArrays& arrays, const Slice& slice, std::int64_t level, MatrixView x);
  template <class Visit>
  void visit_embedded(const StepArrays& arrays, const Slice& slice, MatrixView x, Visit&& visit);
  Slice cut(const StepArrays& arrays, std::int64_t begin, std::int64_t end);
  bool is_interrupted(const StepArrays& arrays) const;
  // Returns the rows kept after the last layer; nothing: an interrupt cut the slice.
  std::optional<MatrixView> compute_layers(const StepArrays& arrays, Slice& slice, MatrixView x);
  // The last layer's feed-forward computes only the wanted rows: a prompt's other rows are needed there for K and V
  // only.
  MatrixView compute_last_layer(const StepArrays& arrays, Slice& slice, const LayerRun& layer, MatrixView x);
  bool narrows_last_layer() const;
  MatrixView keep_wanted_rows(const StepArrays& arrays, Slice& slice, MatrixView x);
  void compute_rotations(const Slice& slice);
  void embed(const StepArrays& arrays, Slice& slice, MatrixView x);
  void add_token_types(const StepArrays& arrays, const Slice& slice, MatrixView x);
  void embed_per_layer(std::span<const std::int32_t> ids, Slice& slice, MatrixView x);
  // Copies the wanted rows of the slice to their place in `out`; returns the number of rows in `out` so far.
  std::int64_t collect(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x, MatrixView out);
  MatrixView compute_logits(const StepArrays& arrays, MatrixView input);
  void add_to_logits(const StepArrays& arrays, const ProductInput& in, MatrixView logits);
  void apply_dense(MatrixView hidden);
  MatrixView compute_labels(MatrixView input);
  void average_sequences(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x, MatrixView out);

  void compute_layer(const LayerRun& layer, MatrixView x);
  // Operations after a layer's branches.
  void finish_layer(const LayerRun& layer, MatrixView x);
  // x += the mixer and the feed-forward, both of the same x or one after the other.
  void compute_branches(const LayerRun& layer, MatrixView x);
  void add_parallel_branches(const LayerRun& layer, MatrixView x);
  void add_mixer(const LayerRun& layer, MatrixView x);
  void add_feed_forward(const LayerRun& layer, MatrixView x);
  void add_branch(const LayerRun& layer, WeightRole norm, MatrixView branch, MatrixView x);
  // The contribution of the layer's own embedding of the token, in a buffer of its own.
  MatrixView per_layer_branch(const LayerRun& layer, MatrixView x);
  // Residual streams: the first stream is split into all; each layer computes a prediction of the first stream from
  // all, and corrects all by the result; in the end all are merged.
  void split_streams(Slice& slice, MatrixView x);
  void merge_streams(const Slice& slice, MatrixView x);
  void compute_streams(const LayerRun& layer, MatrixView x);
  MatrixView stream_factors(const LayerRun& layer, WeightRole role, MatrixView x, std::int64_t count);
  void add_laurel(const LayerRun& layer, const ProductInput& in, MatrixView x);
  // The block that predicts the token after next: its input, made from tokens and the hidden states before them.
  void join_next(std::span<const std::int32_t> ids, MatrixView hidden, MatrixView out);
  // Stores the block's K and V of all rows of the slice, whose hidden states before the last norm are x.
  void store_next(const StepArrays& arrays, const Slice& slice, MatrixView x);

  // Computes the logits of these tokens, or of all if none are named; other logits may be minus infinity.
  void multiply_head(std::span<const OutputRange> vocabulary, const ProductInput& in, MatrixView out);
  std::span<const AdapterRun> adapter_runs(const StepArrays& arrays, std::int64_t first, std::int64_t end);
  // The runs of the slice's kept rows, instead of those of all rows.
  std::span<const AdapterRun> adapters_of_kept(std::span<const std::int32_t> rows);
  std::int64_t most_chosen() const;
  GraphOps& graph() const { return work_.graph(); }
  MatrixView room(ActivationName which, std::int64_t rows, std::int64_t cols) const {
    return work_.room(which, rows, cols);
  }
  void norm_model(WeightRole role, MatrixView x, MatrixView out) const { work_.norm(weights_.model, role, x, out); }

  ModelSpec spec_;
  PackedModel weights_;
  Backend& backend_;
  std::shared_ptr<const void> sources_owner_;
  std::vector<RopeFrequencies> ropes_;
  Workspace work_;
  std::unique_ptr<Buffer> shift_;  // taps of a convolution that returns the previous row; null: no MTP block
  std::vector<std::int32_t> slice_query_start_;
  std::vector<std::int32_t> slice_context_len_;
  std::vector<std::int32_t> slice_wanted_;
  std::vector<std::int32_t> slice_kept_;
  std::vector<AdapterRun> slice_adapters_;
  std::vector<std::int32_t> listed_ids_;  // tokens that have an embedding for each layer
  MatrixView last_head_input_;            // the last pass's logit rows, before the last norm
  MatrixView last_drafted_;               // the last drafting round's rows, after the block's norm
};

}  // namespace quire
