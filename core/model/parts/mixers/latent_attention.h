// LatentAttention: multi-head latent attention (arXiv 2405.04434), absorbed: the cache keeps a latent row of each
// token.
#pragma once

#include "core/model/parts/part.h"

namespace quire {

class LatentAttention final : public Part {
 public:
  const char* name() const override { return "latent attention"; }
  std::span<const RoleName> roles() const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  void bound(const LayerSpec& layer, StepBounds& step) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  bool is_plain(const LayerSpec&) const override { return false; }
  std::int64_t rotated_dim(const LayerSpec& layer) const override;
  KvGroupSpec kept(const LayerSpec& layer) const override;
  KvLayerShape cached_heads(const LayerSpec& layer) const override;
  std::string why_not_cut(const LayerSpec&, const SourceGroup&, int) const override {
    return "it has latent attention";
  }
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;

 private:
  // Results of the projections.
  struct Projected {
    MatrixView absorbed;  // queries as the cache's rows are compared with them
    MatrixView kv;        // a latent row, then its rotated dimensions
  };
  Projected project(const LayerRun& layer, const ProductInput& in, std::int64_t rows) const;
  static void rotate(const LayerRun& layer, const Projected& projected);
};

}  // namespace quire
