// KimiDelta: Kimi delta attention (arXiv 2510.26692), a delta net with a decay for each channel of the key.
#pragma once

#include "core/model/parts/mixers/recurrent_mixer.h"

namespace quire {

class KimiDelta final : public RecurrentMixer {
 public:
  const char* name() const override { return "Kimi delta attention"; }
  std::span<const RoleName> roles() const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

}  // namespace quire
