// LightningAttention: linear attention whose state decays by a fixed factor for each head (Lightning Attention-2,
// arXiv 2401.04658, as in Ring-linear, arXiv 2510.19338).
#pragma once

#include "core/model/parts/mixers/recurrent_mixer.h"

namespace quire {

class LightningAttention final : public RecurrentMixer {
 public:
  const char* name() const override { return "lightning attention"; }
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  std::int64_t rotated_dim(const LayerSpec& layer) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

}  // namespace quire
