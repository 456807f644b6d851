// Transformer: a ModelSpec as a graph over a Backend: a method for each mixer and feed-forward. Engine thread only.
// Invariants: a step within the reserved size allocates nothing; a row's result depends only on its own sequence, so a
// long step is computed in slices of kMaxRows without changing a bit. Sources: arXiv 1706.03762 (attention), 1910.07467
// (RMSNorm), 2002.05202 (SwiGLU), 2104.09864 (RoPE), 2305.13245 (GQA).
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/model/architectures/kv_groups.h"
#include "core/model/layers/adapter.h"
#include "core/model/layers/model.h"
#include "core/model/layers/packed_layers.h"
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
  // A sequence that attends in both directions is computed whole.
  static std::int64_t most_slice_rows(const ModelSpec& spec, std::int64_t num_rows) {
    return spec.is_causal ? std::min(num_rows, kMaxRows) : num_rows;
  }

  // Activations; each is a matrix that every layer reuses.
  enum Slot : std::uint8_t {
    kX,
    kInput,
    kNormed,
    kBranch,
    kBranch2,
    kQkv,
    kQuery,
    kWideQuery,
    kWideKey,
    kWideValue,
    kWideAttended,
    kAttended,
    kGateUp,
    kActivated,
    kRouter,
    kExpertIn,
    kExpertGateUp,
    kExpertOut,
    kMixed,
    kPerLayer,
    kStreams,
    kPredicted,
    kStreamFactors,
    kDense,
    kCos,
    kSin,
    kLowRank,
    kExpertLowRank,
    kNextHidden,
    kNextJoined,
    kNext,
    kHeadInput,  // rows whose logits are wanted, before the last norm
    kHidden,
    kLabelInput,
    kLabelDense,
    kLabels,
    kLogits,
    kHeadLowRank,
    kNumSlots
  };
  using Widths = std::array<std::int64_t, kNumSlots>;  // floats for each row
  static Widths widths(const ModelSpec& spec);
  static void fit_model(const ModelSpec& spec, Widths& out);
  static void fit_layer(const ModelSpec& spec, const LayerSpec& layer, Widths& out);
  static void fit_wide_heads(const LayerSpec& layer, Widths& out);
  static bool is_plain(const ModelSpec& spec);

  // Memory for a fixed number of rows.
  struct Activation {
    std::int64_t capacity = 0;
    std::unique_ptr<Buffer> buffer;
  };
  MatrixView room(Slot slot, std::int64_t rows, std::int64_t cols);

  // Consecutive rows of a slice with the same adapter.
  struct AdapterRun {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    const Adapter* adapter = nullptr;
  };

  // Consecutive rows of a step with the part of its arrays that covers them.
  struct Slice {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    AttentionBatch attention;
    std::span<const std::int32_t> positions;
    std::int64_t positions_per_row = 1;
    StateStorage* states = nullptr;
    KvStorage* kv = nullptr;
    AttentionBatch window;           // the same for layers with a window
    KvStorage* window_kv = nullptr;  // their blocks; null: all layers keep all tokens
    MatrixView per_layer;            // [rows, layers * per_layer_size]
    MatrixView streams;              // [rows, num_streams * hidden]; no data: x is the only stream
    std::span<const AdapterRun> adapters;
    std::optional<std::span<const std::int32_t>> kept;  // rows kept after the last mixer; none: all
  };
  struct Rotation {
    MatrixView cos;
    MatrixView sin;
  };
  // A layer's input to the methods below.
  struct Layer {
    const LayerSpec& spec;
    const PackedLayer& weights;
    std::int64_t index;
    const Slice& slice;
  };

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
  MatrixView compute_last_layer(const StepArrays& arrays, Slice& slice, const Layer& layer, MatrixView x);
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

  void compute_layer(const Layer& layer, MatrixView x);
  // Operations after a layer's branches.
  void finish_layer(const Layer& layer, MatrixView x);
  // x += the mixer and the feed-forward, both of the same x or one after the other.
  void compute_branches(const Layer& layer, MatrixView x);
  void add_parallel_branches(const Layer& layer, MatrixView x);
  void add_mixer(const Layer& layer, MatrixView x);
  void add_feed_forward(const Layer& layer, MatrixView x);
  void add_branch(const Layer& layer, WeightRole norm, MatrixView branch, MatrixView x);
  // The contribution of the layer's own embedding of the token, in a buffer of its own.
  MatrixView per_layer_branch(const Layer& layer, MatrixView x);
  // Residual streams: the first stream is split into all; each layer computes a prediction of the first stream from
  // all, and corrects all by the result; in the end all are merged.
  void split_streams(Slice& slice, MatrixView x);
  void merge_streams(const Slice& slice, MatrixView x);
  void compute_streams(const Layer& layer, MatrixView x);
  MatrixView stream_factors(const Layer& layer, WeightRole role, MatrixView x, std::int64_t count);
  void add_laurel(const Layer& layer, const ProductInput& in, MatrixView x);
  // Computes a branch: adds the result to `out`, or overwrites it.
  void mix(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate);
  void attend(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate);
  // Results of an attention layer's projections, normed and rotated; absent ones have no columns.
  struct Projected {
    MatrixView q;
    MatrixView k;
    MatrixView v;
    MatrixView gate;
  };
  Projected project(const Layer& layer, const ProductInput& in, std::int64_t rows);
  void gate_output(const Layer& layer, const ProductInput& in, MatrixView attended);
  // Copies heads whose size the cache does not take into wider ones, padded with zeros.
  MatrixView widened(Slot slot, MatrixView heads, std::int64_t count, std::int64_t to);
  void narrow(MatrixView heads, std::int64_t count, MatrixView out);
  void store(const Layer& layer, MatrixView k, MatrixView v);
  void store_and_attend(const Layer& layer, MatrixView q, MatrixView k, MatrixView v, MatrixView out);
  void norm_queries_and_keys(const Layer& layer, MatrixView q, MatrixView k);
  void norm_heads(const Layer& layer, WeightRole role, MatrixView heads, std::int64_t count);
  void rotate(const Layer& layer, MatrixView q, MatrixView k);
  void scale_by_temperature(const Layer& layer, MatrixView q);
  void run_attention(const Layer& layer, MatrixView q, MatrixView out);
  void attend_latent(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate);
  void run_delta_net(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate);
  void run_kimi_delta(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate);
  void run_short_conv(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate);
  void run_mamba(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate);
  void run_mamba2(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate);
  // The block that predicts the token after next: its input, made from tokens and the hidden states before them.
  void join_next(std::span<const std::int32_t> ids, MatrixView hidden, MatrixView out);
  // Stores the block's K and V of all rows of the slice, whose hidden states before the last norm are x.
  void store_next(const StepArrays& arrays, const Slice& slice, MatrixView x);
  void feed_forward(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate);
  void feed_forward_both(const Layer& layer, MatrixView x, MatrixView out);
  void run_experts(const Layer& layer, MatrixView router_in, MatrixView in, MatrixView out);
  void feed_experts(const Layer& layer, MatrixView router_in, MatrixView in, MatrixView out);  // sums over all ranks
  // Computes the router's logits, kept for the experts after the mixer.
  void route_early(const Layer& layer, MatrixView x);
  MatrixView weighted_inputs(MatrixView in, const ExpertChoices& choices);
  void sum_choices(MatrixView rows, MatrixView out);
  void add_shared_expert(const Layer& layer, MatrixView in, MatrixView out);

  void multiply(const PackedGroup& group, WeightRole product, const ProductInput& in, MatrixView out, bool accumulate);
  // Multiplies, with the changes of the rows' adapters.
  void multiply(const Layer& layer, WeightRole product, const ProductInput& in, MatrixView out, bool accumulate);
  // Computes the logits of these tokens, or of all if none are named; other logits may be minus infinity.
  void multiply_head(std::span<const OutputRange> vocabulary, const ProductInput& in, MatrixView out);
  // Multiplies by a matrix of which each rank has some columns.
  void multiply_cut(const Layer& layer, WeightRole product, const ProductInput& in, MatrixView out, bool accumulate);
  void reserve_shares(std::int64_t rows) const;
  void gather_logits(MatrixView own, MatrixView all) const;
  std::span<const AdapterRun> adapter_runs(const StepArrays& arrays, std::int64_t first, std::int64_t end);
  // The runs of the slice's kept rows, instead of those of all rows.
  std::span<const AdapterRun> adapters_of_kept(std::span<const std::int32_t> rows);
  void add_low_rank(Slot slot, std::span<const LowRank> changes, const ProductInput& in, MatrixView out);
  std::int64_t most_chosen() const;
  void add_expert_changes(const Layer& layer, std::int64_t rows_of_each, ExpertArgs& args);
  void norm(const PackedGroup& group, WeightRole role, MatrixView x, MatrixView out);
  // The input of a branch: normed inside its product if a single product takes all of it, else normed here.
  ProductInput branch_input(const Layer& layer, WeightRole role, MatrixView x, bool one_product);
  GraphOps& graph() const;
  RecurrentOps& recurrent() const;
  StatePart state_of(const Layer& layer, bool behind_conv) const;
  // The storage of a layer's K and V.
  struct Kept {
    KvStorage& kv;
    const AttentionBatch& batch;
  };
  Kept kept(const Layer& layer) const {
    const Slice& slice = layer.slice;
    const bool has_parts = slice.window_kv != nullptr && kept_windows_[static_cast<std::size_t>(layer.index)] > 0;
    return has_parts ? Kept{*slice.window_kv, slice.window} : Kept{*slice.kv, slice.attention};
  }
  // Index of the layer in the KV storage.
  std::int64_t kv_layer(std::int64_t layer) const { return first_kv_layer_ + (keeps_one_layer_ ? 0 : layer); }

  ModelSpec spec_;
  PackedModel weights_;
  Backend& backend_;
  RankSum* const rank_sum_;
  std::shared_ptr<const void> sources_owner_;
  std::vector<RopeFrequencies> ropes_;
  std::vector<StatePlace> state_places_;
  const bool keeps_one_layer_;
  const std::int64_t first_kv_layer_;
  const std::vector<std::int64_t> kept_windows_;
  std::unique_ptr<Buffer> ones_;   // weight of norms without one
  std::unique_ptr<Buffer> zeros_;  // zero weights of the same size
  std::unique_ptr<Buffer> shift_;  // taps of a convolution that returns the previous row; null: no MTP block
  float eps_;
  Widths widths_;
  std::array<Activation, kNumSlots> activations_;
  std::vector<Rotation> rotations_;  // the slice's rotations, by rope
  std::vector<std::int32_t> slice_query_start_;
  std::vector<std::int32_t> slice_context_len_;
  std::vector<std::int32_t> slice_wanted_;
  std::vector<std::int32_t> slice_kept_;
  std::vector<AdapterRun> slice_adapters_;
  std::vector<ExpertChange> expert_changes_;
  std::vector<std::int32_t> row_changes_;
  std::vector<std::int32_t> listed_ids_;  // tokens that have an embedding for each layer
  std::vector<float> row_factors_;
  MatrixView last_head_input_;  // the last pass's logit rows, before the last norm
  MatrixView last_drafted_;     // the last drafting round's rows, after the block's norm
};

}  // namespace quire
