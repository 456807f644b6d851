// Transformer: a ModelSpec as a graph over a Backend: embedding, layers, head (parts.h), over the slices of a step.
// Engine thread only. Invariants: a step within the reserved size allocates nothing; a row's result depends only on its
// own sequence, so a long step is computed in slices without changing a bit.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/model/layers/model.h"
#include "core/model/layers/packed_layers.h"
#include "core/model/layers/step_slices.h"
#include "core/model/parts/layer_run.h"
#include "core/model/parts/model_spec.h"
#include "kernels/device_step_bytes.h"

namespace quire {

class RankSum;

class Transformer final : public Model {
 public:
  // `sources_owner` keeps the memory behind the embedding alive. first_kv_layer: the model's first layer in the KV
  // storage. rank_sum: the sum over ranks, if this is one rank's share of a model; null: a whole model.
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
  static std::size_t share_bytes(const ModelSpec& spec, std::int64_t num_rows, int num_ranks);

 private:
  using enum ActivationName;

  bool is_interrupted(const StepArrays& arrays) const;
  void compute_rotations(const Slice& slice);
  void embed(const StepArrays& arrays, Slice& slice, MatrixView x);
  // Returns the rows kept after the last layer; nothing: an interrupt cut the slice.
  std::optional<MatrixView> compute_layers(const StepArrays& arrays, Slice& slice, MatrixView x);
  MatrixView compute_last_layer(const StepArrays& arrays, Slice& slice, const LayerRun& layer, MatrixView x);
  // Levels of embeddings after the first are added to the first layers' outputs.
  bool has_level(const StepArrays& arrays, std::int64_t level) const;
  void add_level(const StepArrays& arrays, const Slice& slice, std::int64_t level, MatrixView x);
  // Copies the wanted rows of the slice to their place in `out`; returns the number of rows in `out` so far.
  std::int64_t collect(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x, MatrixView out);
  // Copies the mean of each wanted row's sequence instead; the whole sequence is in the slice.
  std::int64_t collect_means(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x, MatrixView out);

  LayerRun layer_run(std::int64_t index, const Slice& slice) {
    return {work_, spec_.layer(index), weights_.layers[static_cast<std::size_t>(index)], index, slice};
  }
  MatrixView room(ActivationName which, std::int64_t rows) const {
    return work_.room(which, rows, spec_.config.hidden_size);
  }

  const ModelSpec spec_;
  const PackedModel weights_;
  Backend& backend_;
  const std::shared_ptr<const void> sources_owner_;
  std::vector<RopeFrequencies> ropes_;
  Workspace work_;
  const ModelRun model_;
  StepSlices slices_;
  MatrixView last_head_input_;  // the last pass's logit rows, before the last norm
  MatrixView last_drafted_;     // the last drafting round's rows, after the block's norm
};

}  // namespace quire
