// DeltaNet: the gated delta net (arXiv 2412.06464).
#pragma once

#include "core/model/parts/mixers/recurrent_mixer.h"

namespace quire {

class DeltaNet final : public RecurrentMixer {
 public:
  const char* name() const override { return "gated delta net"; }
  std::span<const RoleName> roles() const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

}  // namespace quire
