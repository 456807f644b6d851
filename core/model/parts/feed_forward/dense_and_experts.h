// DenseAndExperts: a dense feed-forward and experts side by side, each with norms of its own (Gemma 4).
#pragma once

#include "core/model/parts/feed_forward/dense.h"
#include "core/model/parts/feed_forward/experts.h"

namespace quire {

class DenseAndExperts final : public Part {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  std::vector<ExpertMatrix> expert_matrices(const LayerSpec& layer, std::int64_t hidden_size) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  void bound(const LayerSpec& layer, StepBounds& step) const override { experts_.bound(layer, step); }
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  bool is_plain(const LayerSpec&) const override { return false; }
  std::string why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const override;
  void cut(const LayerSpec& whole, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const override;
  bool can_accumulate(const LayerSpec&) const override { return false; }
  bool norms_input() const override { return true; }
  void prepare(const LayerRun& layer, MatrixView x) const override { experts_.prepare(layer, x); }
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;

 private:
  const Dense dense_{};
  const Experts experts_{};
};

}  // namespace quire
