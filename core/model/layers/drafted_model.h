// DraftedModel: a model beside a small one of the same vocabulary that drafts for it. The small one keeps K and V as
// further layers of the same blocks: what shares, moves or gives up a block does so for both. Engine thread only.
// Invariant: the large model's results are its own, bit for bit; the small one computes nothing but what draft() is
// given, and knows no adapters.
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

// Of which a round predicts tokens.
inline constexpr std::int64_t kMostDraftedSequences = 64;

class DraftedModel final : public Model {
 public:
  // The drafter was built to keep its layers behind those of `model`.
  DraftedModel(std::unique_ptr<Model> model, std::unique_ptr<Model> drafter, Backend& backend);

  void reserve(std::int64_t max_rows, std::int64_t max_logit_rows) override;
  void allow_adapters(std::int64_t max_rank) override { model_->allow_adapters(max_rank); }
  std::shared_ptr<const Adapter> load_adapter(const std::filesystem::path& path) const override {
    return model_->load_adapter(path);
  }
  ModelOutput forward(const StepArrays& arrays, KvStorage& kv) override { return model_->forward(arrays, kv); }
  // As wide as the large model's logits. Tokens that only one of the two has are not predicted, and read as the first.
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
  std::vector<std::int32_t> ids_;    // of a round, as the drafter has them
  std::unique_ptr<Buffer> lacking_;  // of tokens that the drafter has not; null: it has all
  std::unique_ptr<Buffer> widened_;
};

// The layers of both, the drafter's behind; it keeps all tokens in all of its layers.
KvLayout with_drafter(const KvLayout& model, const KvLayout& drafter);
KvSplit with_drafter(const KvSplit& model, const KvLayout& drafter);

// Why `drafter` cannot draft for `model`; empty where it can.
std::string why_not_drafter(const LoadedModel& model, const LoadedModel& drafter);

// Opens `drafter` for the model that was opened from `path`; null where `drafter` is empty. Throws StartupError, one
// line, also where it cannot draft for it.
std::shared_ptr<const LoadedModel> open_drafter(const LoadedModel& model, const std::filesystem::path& path,
                                                const std::filesystem::path& drafter, bool ignore_unknown_keys = false);

// Both models, one behind the other in the KV storage. The caches are each model's own.
std::unique_ptr<Model> build_with_drafter(const LoadedModel& model, const LoadedModel& drafter, Backend& backend,
                                          const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                                          const PackedCacheOptions& cache = {},
                                          const PackedCacheOptions& drafter_cache = {});

}  // namespace quire
