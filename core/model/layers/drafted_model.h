// DraftedModel: a model with a small one of the same vocabulary that drafts for it. The small one keeps K and V as
// additional layers of the same blocks: sharing, moving or releasing a block affects both. Engine thread only.
// Invariant: the large model's results are its own, bit for bit; the small one computes only the arrays given to
// draft(), and knows no adapters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/layers/loaded_model.h"
#include "core/model/layers/model.h"

namespace quire {

// Most sequences in a drafting round.
inline constexpr std::int64_t kMostDraftedSequences = 64;

class DraftedModel final : public Model {
 public:
  // The drafter must have been built to keep its layers after those of `model`.
  DraftedModel(std::unique_ptr<Model> model, std::unique_ptr<Model> drafter, Backend& backend);

  void reserve(std::int64_t max_rows, std::int64_t max_logit_rows) override;
  void allow_adapters(std::int64_t max_rank) override { model_->allow_adapters(max_rank); }
  std::shared_ptr<const Adapter> load_adapter(const std::filesystem::path& path) const override {
    return model_->load_adapter(path);
  }
  ModelOutput forward(const StepArrays& arrays, KvStorage& kv) override { return model_->forward(arrays, kv); }
  // The result is as wide as the large model's logits. Tokens that only one vocabulary has are not predicted, and are
  // read as token 0.
  MatrixView draft(const DraftArrays& arrays, KvStorage& kv) override;
  DraftsBy drafts_by() const override { return DraftsBy::kModel; }
  std::int64_t max_draft_context() const override { return drafter_->max_context(); }

  std::int64_t positions_per_row() const override { return model_->positions_per_row(); }
  bool is_causal() const override { return model_->is_causal(); }
  bool has_head() const override { return model_->has_head(); }
  std::int64_t num_labels() const override { return model_->num_labels(); }
  std::int64_t state_floats() const override { return model_->state_floats(); }
  std::int64_t vocab_size() const override { return model_->vocab_size(); }
  std::int64_t hidden_size() const override { return model_->hidden_size(); }
  std::int64_t max_context() const override { return model_->max_context(); }
  KvLayout kv_layout() const override;
  KvSplit kv_split() const override;

 private:
  const std::unique_ptr<Model> model_;
  const std::unique_ptr<Model> drafter_;
  Backend& backend_;
  std::vector<std::int32_t> ids_;    // a round's ids in the drafter's vocabulary
  std::unique_ptr<Buffer> lacking_;  // logits of tokens that the drafter lacks; null: it has all
  std::unique_ptr<Buffer> widened_;
};

// The layers of both, the drafter's last; the drafter keeps all tokens in all of its layers.
KvLayout with_drafter(const KvLayout& model, const KvLayout& drafter);
KvSplit with_drafter(const KvSplit& model, const KvLayout& drafter);

// The reason why `drafter` cannot draft for `model`; empty: it can.
std::string why_not_drafter(const LoadedModel& model, const LoadedModel& drafter);

// Opens `drafter` for the model that was opened from `path`; null if `drafter` is empty. Throws StartupError, one line,
// also if it cannot draft for the model.
std::shared_ptr<const LoadedModel> open_drafter(const LoadedModel& model, const std::filesystem::path& path,
                                                const std::filesystem::path& drafter, bool ignore_unknown_keys = false);

// Builds both models, one after the other in the KV storage. Each has its own cache of packed weights.
std::unique_ptr<Model> build_with_drafter(const LoadedModel& model, const LoadedModel& drafter, Backend& backend,
                                          const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                                          const PackedCacheOptions& cache = {},
                                          const PackedCacheOptions& drafter_cache = {});

}  // namespace quire
