// Dense: a feed-forward of two or three products: gated (SwiGLU, arXiv 2002.05202) or not, with sparse gates.
#pragma once

#include "core/model/parts/part.h"

namespace quire {

class Dense final : public Part {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  bool is_plain(const LayerSpec& layer) const override;
  std::string why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const override;
  void cut(const LayerSpec& whole, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const override;
  bool takes_one_product(const LayerSpec&) const override { return true; }
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

}  // namespace quire
